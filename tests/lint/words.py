#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""words.py ROOT: words that the project does not use, in the pages, in the other files that users read
and in what the programs print, and the wrap of the pages.

Pages are all *.md files. The other files are configuration, units, alerts and dashboards. What the
programs print is taken to be every string literal of the product's sources. Names of log events and
keys of JSON documents keep their names: a literal without a blank is none of this check's business.
"""

import pathlib
import re
import sys

# The word, and what to write instead.
WORDS = {
    r"somebody|someone|anybody|nobody|whoever|everybody": "name the actor: client, daemon, operator, user",
    r"\bhe\b|\bhis\b|\bhim\b": "name the actor",
    r"\bshall\b": "must, or the present tense",
    r"for ever\b": "indefinitely",
    r"\banew\b": "again",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"by the socket": "over the socket",
    r"\btells?\b|\btold\b|\btelling\b": "report, show, record",
    r"(is|are|was|were) away\b": "unavailable",
    r"right behind\b": "right after",
    r"\bsee to\b|\bsees to\b": "handle",
}
# Where one of them is the subject: names, quotations, idioms of the field.
ALLOWED = re.compile(
    r"`[^`]*`|65534|\]\([^)]*\)|tells? (\w+ ){1,6}apart|\[claims by the socket alone\]|\w*Nobody\w+")
COLUMNS = 100
# Other files that users read.
OTHERS = ("daemon/*.toml", "systemd/**/*.in", "systemd/*.socket", "systemd/**/*.conf", "docs/**/*.yml",
          "docs/**/*.yaml", "docs/**/*.json")
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')


def findings_in(where, text):
    text = ALLOWED.sub("", text)
    for word, instead in WORDS.items():
        match = re.search(word, text, re.IGNORECASE)
        if match:
            yield f"{where}: '{match.group(0)}' is not used here; {instead}"


def check_page(path):
    is_code = False
    is_measured = False  # written by a benchmark
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
            continue
        if "<!-- measured:" in line:
            is_measured = "begin" in line
            if not line.endswith("-->"):
                yield f"{path}:{number}: the benchmark that writes this part wants its mark alone in a line"
        if is_code or line.startswith("    "):
            continue
        yield from findings_in(f"{path}:{number}", line)
        # A row of a table, a picture and a term of a man page are one line each.
        is_prose = not line.startswith(("|", "![", "**")) and " " in line.strip(" -*#>")
        if is_prose and not is_measured and len(line) > COLUMNS:
            yield f"{path}:{number}: {len(line)} columns; prose wraps at {COLUMNS}"


def check_source(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if re.match(r"\s*(//|\*|#\s*include)", line):
            continue
        for literal in LITERAL.findall(line.split("  // ")[0]):
            if " " in literal.strip():
                yield from findings_in(f"{path}:{number}", literal)


def check_lines(path):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        yield from findings_in(f"{path}:{number}", line)


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    findings = []
    for path in sorted(root.rglob("*.md")):
        if not {"build", ".git", ".cache"} & set(path.relative_to(root).parts):
            findings += check_page(path)
    for folder in ("shm", "libclient", "daemon", "tools"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".h", ".hpp", ".cc"):
                findings += check_source(path)
    for pattern in OTHERS:
        for path in sorted(root.glob(pattern)):
            findings += check_lines(path)
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
