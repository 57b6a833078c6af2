#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""doc_links.py ROOT: every link of a page leads to a page, a place in a page or a file that exists,
and every test that docs/failures.md names is there.
"""

import pathlib
import re
import sys

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
PLACE = re.compile(r'\bid="([^"]+)"')
TEST = re.compile(r"`((?:abi|fuzz|integration|model|packages|stress|unit)/[\w./]*)`")
FAILURES = pathlib.PurePath("docs", "failures.md")
GENERATED = {"build", ".git"}


def without_code(text):
    """The text with its lines where they were and nothing in its blocks of code."""
    return FENCE.sub(lambda match: "\n" * match.group(0).count("\n"), text)


def anchor(heading):
    """The anchor that the forges make of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
    return re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", text).lower()).replace(" ", "-")


def anchors(page):
    text = without_code(page.read_text(encoding="utf-8"))
    return {anchor(heading) for heading in HEADING.findall(text)} | set(PLACE.findall(text))


def check_link(page, link):
    if re.match(r"[a-z]+:", link):
        return None
    name, _, place = link.partition("#")
    target = (page.parent / name).resolve() if name else page
    if not target.exists():
        return f"there is no {link}"
    if place and target.suffix == ".md" and place not in anchors(target):
        return f"there is no such place: {link}"
    return None


def check(root, page):
    text = without_code(page.read_text(encoding="utf-8"))
    for number, line in enumerate(text.splitlines(), 1):
        for link in LINK.findall(line):
            finding = check_link(page, link)
            if finding is not None:
                yield f"{page}:{number}: {finding}"
        if page != root / FAILURES:
            continue
        for test in TEST.findall(line):
            if not (root / "tests" / test).exists():
                yield f"{page}:{number}: there is no test {test}"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    findings = []
    for page in sorted(root.rglob("*.md")):
        if not GENERATED & set(page.relative_to(root).parts):
            findings += check(root, page)
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
