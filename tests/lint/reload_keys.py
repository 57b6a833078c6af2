#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reload_keys.py ROOT: each text that lists what a reload applies lists every key that
daemon/src/config/reload.cc applies, and no key that needs a restart."""

import pathlib
import re
import sys

# File: the beginning of the list, whose end is the next full stop.
TEXTS = {
    "daemon/idd.toml": "# SIGHUP applies ",
    "daemon/idd.8.md": ":   Read the configuration again. ",
    "daemon/idd.toml.5.md": "idd reads the file again. ",
    "docs/operations.md": "makes idd read the configuration again. ",
}


def keys_of(code, kind):
    """The keys that PlanReload() notes in plan.<kind>."""
    return set(re.findall(r'Note\("(\w+)",[^;]*plan\.%s\);' % kind, code))


def check(root, path, beginning, applied, not_applied):
    text = (root / path).read_text(encoding="utf-8")
    if beginning not in text:
        return [f"{path}:1: does not say '{beginning.strip()}'"]
    at = text.index(beginning)
    number = text.count("\n", 0, at) + 1
    words = set(re.findall(r"\w+", text[at + len(beginning):].split(". ", 1)[0]))
    return [f"{path}:{number}: {what} '{key}'"
            for what, keys in (("lacks", applied - words), ("must not list", not_applied & words))
            for key in sorted(keys)]


def main():
    root = pathlib.Path(sys.argv[1])
    code = (root / "daemon/src/config/reload.cc").read_text(encoding="utf-8")
    applied, not_applied = keys_of(code, "changed"), keys_of(code, "not_changed")
    findings = [] if applied and not_applied else ["daemon/src/config/reload.cc:1: no keys found"]
    for path, beginning in TEXTS.items():
        findings += check(root, path, beginning, applied, not_applied)
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
