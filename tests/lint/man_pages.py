#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""man_pages.py ROOT: a man page shows an asterisk only where its source has \\*. Any other asterisk
in the output belongs to an emphasis that pandoc does not recognise, as in **@***HOST*. And each
definition has a term of one line: pandoc takes a longer one for a paragraph."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

VERBATIM = {"Code", "CodeBlock"}


def shown(node):
    """The asterisks in the text of a pandoc document, without what is verbatim."""
    if isinstance(node, dict):
        if node.get("t") in VERBATIM:
            return 0
        if node.get("t") == "Str":
            return node["c"].count("*")
        return shown(node.get("c", node.get("blocks", [])))
    if isinstance(node, list):
        return sum(shown(child) for child in node)
    return 0


def check(path):
    text = path.read_text(encoding="utf-8")
    done = subprocess.run(["pandoc", "--from", "markdown", "--to", "json", str(path)],
                          stdout=subprocess.PIPE, check=True)
    expected = text.count("\\*")
    found = shown(json.loads(done.stdout)["blocks"])
    if found == expected:
        return
    # Finds the line to report: the first paragraph that shows more asterisks than it has \*.
    for number, paragraph in paragraphs(text):
        done = subprocess.run(["pandoc", "--from", "markdown", "--to", "json"], input=paragraph.encode(),
                              stdout=subprocess.PIPE, check=True)
        if shown(json.loads(done.stdout)["blocks"]) != paragraph.count("\\*"):
            yield f"{path}:{number}: shows an asterisk that is not written \\*"
            return
    yield f"{path}:1: shows {found} asterisks, not {expected}"


def check_terms(path):
    lines = [""] + path.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if re.search(r"\S :   ", line):
            yield f"{path}:{number}: a definition begins in the middle of a line"
        if line.startswith(":   ") and (not lines[number - 1] or lines[number - 2]):
            yield f"{path}:{number}: the term of a definition must be one line"


def paragraphs(text):
    number = 1
    for paragraph in re.split(r"(\n\n+)", text):
        if paragraph.strip():
            # A definition's text is indented; on its own pandoc would take it for a block of code.
            is_definition = re.search(r"^:   ", paragraph, flags=re.MULTILINE)
            yield number, re.sub(r"^(:   |    )", "", paragraph, flags=re.MULTILINE) if is_definition else paragraph
        number += paragraph.count("\n")


def main():
    if shutil.which("pandoc") is None:
        print("pandoc is not installed")
        return 77
    root = pathlib.Path(sys.argv[1])
    pages = sorted(path for folder in ("daemon", "tools", "libclient") for path in (root / folder).glob("*.[1-8].md"))
    if not pages:
        print(f"{root}: has no man pages")
        return 1
    findings = [finding for path in pages for finding in (*check_terms(path), *check(path))]
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
