#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""memory_orders.py ROOT: in the product every atomic operation names its memory order, and every
memory order has a label (`P4, pairs with C1`) in the comment on its statement or directly above.

A label that is paired with must exist. The letter of a label says which words it is about: it is
used in the files of HOMES alone, so that a label means one thing in the whole tree. volatile and
fences between threads are not used.
"""

import pathlib
import re
import sys

# Letter: the files whose words it is about.
SHM = ("shm/",)
HOMES = {
    "A": ("libclient/src/tag.",),  # a tag's attachment
    "B": ("libclient/src/thread_blocks.", "libclient/include/idclient/thread_block.h"),
    "C": SHM,  # claim
    "D": SHM,  # drain
    "E": ("daemon/src/restart/held_leases.cc",),
    "F": ("libclient/src/connection.cc",),
    "G": ("libclient/src/process_lock.h",),
    "H": SHM,  # head
    # sources of time and chance
    "I": ("libclient/src/idclient.cc",),  # inside a call
    "J": ("shm/include/idd/base/clock.h", "daemon/src/platform/random.h"),
    "K": ("libclient/src/client.cc",),
    "L": SHM,  # look
    "M": ("libclient/src/process_mark.cc",),
    "N": ("shm/", "libclient/src/tag.cc"),  # next: a claimer's view
    "O": SHM,  # observer
    "P": SHM,  # publish
    "Q": ("libclient/src/pending_call.",),
    "R": ("tools/src/bench/bench_run.cc",),
    "S": SHM,  # state of a ring
    "T": SHM,  # statistics
    "U": SHM,  # time of snowflakes
    "V": SHM,  # version: the header
    "W": SHM,  # witness
    "X": ("daemon/src/exporter/metrics_textfile.cc",),
    "Y": SHM,  # lanes
    "Z": ("libclient/java/",),  # closing a native object under calls
}
LABEL = re.compile(r"\b[A-Z][0-9]+\b")
PAIRS = re.compile(r"pairs with ((?:[A-Z][0-9]+(?:, | and | or )?)+)")
ORDER = re.compile(r"\bmemory_order(?:_|::)\w+")
# `x.store(a, b)` need not be an atomic operation; load() and the fetch_ family nearly always are.
IMPLICIT = re.compile(r"(?:\.|->)(?:load\(\s*\)|(?:fetch_\w+|exchange|compare_exchange_\w+)\()")
FORBIDDEN = re.compile(r"\b(?:volatile|atomic_thread_fence)\b")
# Not followed by a quote: a `//` inside a string literal.
COMMENT = re.compile(r"//(?!.*\"\s*[;,)]).*|/\*.*?\*/")


def split(line):
    """(code, comment) of one line. A block comment of several lines counts as comment."""
    if re.match(r"\s*\*", line):
        return "", line
    comment = " ".join(match.group(0) for match in COMMENT.finditer(line))
    return COMMENT.sub("", line), comment


class File:
    def __init__(self, path, name):
        self.path = path
        self.name = name
        self.lines = [split(line) for line in path.read_text(encoding="utf-8").splitlines()]

    def statement(self, at):
        """First and last line of the statement that covers line `at`."""
        ends = re.compile(r"[;{}]\s*$|^\s*$|^\s*#|:\s*$")
        first = last = at
        while first > 0 and not ends.search(self.lines[first - 1][0]):
            first -= 1
        while not ends.search(self.lines[last][0]) and last + 1 < len(self.lines):
            last += 1
        return first, last

    def comments(self, first, last):
        """The comments on these lines and those directly above."""
        above = first
        while above > 0 and not self.lines[above - 1][0].strip() and self.lines[above - 1][1]:
            above -= 1
        return " ".join(comment for _, comment in self.lines[above : last + 1])

    def findings(self):
        for at, (code, _) in enumerate(self.lines):
            where = f"{self.path}:{at + 1}: "
            if FORBIDDEN.search(code):
                yield where + "no volatile and no fences: an order on the atomic says which it pairs with"
            if not ORDER.search(code) and not IMPLICIT.search(code):
                continue
            first, last = self.statement(at)
            statement = " ".join(code for code, _ in self.lines[first : last + 1])
            if not ORDER.search(statement):
                yield where + "an atomic operation without a memory order (it would be seq_cst)"
            elif ORDER.search(code):
                labels = LABEL.findall(self.comments(first, last))
                if not labels:
                    yield where + "a memory order without a label such as `P4, pairs with C1`"
                for label in sorted(set(labels)):
                    if not self.name.startswith(HOMES.get(label[0], ())):
                        yield where + f"the letter of {label} belongs to other files (HOMES in memory_orders.py)"

    def labels(self):
        """Labels of memory orders: where they stand in a comment, but not behind `pairs with`."""
        for _, comment in self.lines:
            yield from LABEL.findall(PAIRS.sub("", comment))

    def partners(self):
        for at, (_, comment) in enumerate(self.lines):
            for match in PAIRS.finditer(comment):
                for label in LABEL.findall(match.group(1)):
                    yield at + 1, label


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    files = [
        File(path, path.relative_to(root).as_posix())
        for folder in ("shm", "libclient", "daemon", "tools")
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in (".h", ".hpp", ".cc")
    ]
    known = {label for file in files for label in file.labels()}
    findings = [finding for file in files for finding in file.findings()]
    for file in files:
        for number, label in file.partners():
            if label not in known:
                findings.append(f"{file.path}:{number}: pairs with {label}, which is nowhere")
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
