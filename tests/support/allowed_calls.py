#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""allowed_calls.py UNIT: the system calls that the unit's SystemCallFilter= lines allow, a name a line."""

import subprocess
import sys


def members(word):
    """The calls that a filter's word stands for: itself, or the calls of that systemd group."""
    if not word.startswith("@"):
        return {word}
    text = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", word],
                          check=True, stdout=subprocess.PIPE, text=True).stdout
    calls = set()
    for line in text.splitlines()[1:]:
        name = line.strip()
        if name and not name.startswith("#"):
            calls |= members(name)
    return calls


def main():
    calls = set()
    with open(sys.argv[1], encoding="utf-8") as unit:
        filters = [line.split("=", 1)[1].strip() for line in unit
                   if line.startswith("SystemCallFilter=")]
    for words in filters:
        named = set().union(*(members(word) for word in words.lstrip("~").split()))
        calls = calls - named if words.startswith("~") else calls | named
    if "execve" not in calls or "mount" in calls:
        sys.exit(f"{sys.argv[1]}: not a filter of a service")
    print("\n".join(sorted(calls)))


if __name__ == "__main__":
    main()
