#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Extracts commands from a document, verbatim.

document.py blocks FILE                         all fenced blocks: LANGUAGE N HEADING
document.py block FILE LANGUAGE N HEADING       the Nth of that language below the heading
document.py commands FILE                       all commands that are code spans, each once
document.py span FILE BEGINNING                 the code span equal to BEGINNING, else the only one
                                                that starts with it
"""

import re
import sys


def blocks(text):
    """(language, number, heading, lines) of each fenced block; the number counts those of a language below a heading."""
    heading, counts, inside = "", {}, None
    for line in text.splitlines():
        if inside is not None:
            if line.startswith("```"):
                yield inside
                inside = None
            else:
                inside[3].append(line)
        elif line.startswith("#"):
            heading, counts = line.lstrip("#").strip(), {}
        elif line.startswith("```"):
            language = line[3:].strip()
            counts[language] = counts.get(language, 0) + 1
            inside = (language, counts[language], heading, [])


COMMANDS = ("apt ", "idctl ", "idd ", "install ", "journalctl ", "mariadb", "runuser ", "sqlite3 ", "systemctl ", "systemd-")


def spans(text):
    """Code spans, each once."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return sorted(set(re.findall(r"(?<!`)`([^`\n]+)`(?!`)", prose)))


def main():
    what, path, *words = sys.argv[1:]
    with open(path, encoding="utf-8") as document:
        text = document.read()
    if what == "blocks":
        for language, number, heading, _ in blocks(text):
            print(language, number, heading)
        return
    if what == "commands":
        print("\n".join(span for span in spans(text) if span.startswith(COMMANDS)))
        return
    if what == "block":
        wanted = (words[0], int(words[1]), words[2])
        found = ["\n".join(lines) for *name, lines in blocks(text) if tuple(name) == wanted]
    else:
        found = [span for span in spans(text) if span.startswith(words[0])]
        if words[0] in found:
            found = [words[0]]
    if len(found) != 1:
        sys.exit(f"document.py: {path} has {len(found)} of '{' '.join(words)}', not one: {found}")
    print(found[0])


main()
