#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the README's first console block with what scripts/demo printed.

usage: demo_output.py README OUTPUT

The README shows a part of the output. Each of its lines must be in the output, in that order;
numbers, names of temporary folders, white space and comments do not count. Prints what is missing.
"""

import re
import sys


def normalised(line):
    line = line.split(" # ")[0]
    line = re.sub(r"/tmp/idd-demo[.\w]*", "/tmp/idd-demo", line)
    line = re.sub(r"\d+", "N", line)
    return " ".join(line.split())


def missing(readme, output):
    block = re.search(r"```console\n(.*?)```", readme, re.DOTALL)
    if block is None:
        return ["a console block"]
    printed = [normalised(line) for line in output.splitlines()]
    lost = []
    at = 0
    for line in filter(str.strip, block[1].splitlines()):
        wanted = normalised(line)
        if wanted in printed[at:]:
            at = printed.index(wanted, at) + 1
        else:
            lost.append(line)
    return lost


def main():
    with open(sys.argv[1], encoding="utf-8") as readme, open(sys.argv[2], encoding="utf-8") as output:
        lost = missing(readme.read(), output.read())
    for line in lost:
        print(f"README.md shows, and scripts/demo does not print: {line}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
