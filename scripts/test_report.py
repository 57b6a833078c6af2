#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The reports of scripts/test on a build and on a test run.

test_report.py follow NAME         the output of ninja or ctest on stdin, as one updated line (on a
                                   terminal) or a line now and then; failures in full
test_report.py counts REPORT       "passed failed skipped" of a report in JUnit form
test_report.py failed REPORT...    the names of the tests that failed, a line each
test_report.py slowest N REPORT... the N slowest tests, a line each
"""

import pathlib
import re
import shutil
import sys
import time
import xml.etree.ElementTree

BUILT = re.compile(r"^\[(\d+)/(\d+)\] ")
STARTED = re.compile(r"^\s*Start\s+\d+: (.*)$")
ENDED = re.compile(r"^\s*(\d+)/(\d+) Test\s+#\d+: (.*?) \.*\s*(\*\*\*\S.*?|Passed|Skipped)\s+[\d.]+ sec")
QUIET_S = 20  # the longest silence where there is no terminal
TOLD = {"***Skipped": "skipped", "***Not Run": "not run"}


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Follower:
    """Reads lines and writes a status line, which the next one replaces. Thread safety: none."""

    def __init__(self, name):
        self.name = name
        self.began = time.monotonic()
        self.running = {}  # start time of each test
        self.failed = 0
        self.shown_at = self.began
        self.on_terminal = sys.stdout.isatty()
        self.is_summary = False  # True in ctest's own summary, which the caller's summary replaces

    def read(self, line):
        line = line.rstrip("\n")
        if match := BUILT.match(line):
            self.show(f"building, {match[1]} of {match[2]}", match[1] == match[2])
        elif match := STARTED.match(line):
            self.running[match[1]] = time.monotonic()
        elif match := ENDED.match(line):
            self.end(match[3], match[4])
            self.show(self.progress(match[1], match[2]), match[1] == match[2])
        elif re.match(r"^\d+% tests passed", line):
            self.is_summary = True
        elif self.failed and line and not self.is_summary:
            self.print(line)

    def end(self, test, verdict):
        took = time.monotonic() - self.running.pop(test, time.monotonic())
        if verdict.startswith("***") and verdict not in TOLD:
            self.failed += 1
            self.print(f"{verdict.strip('*')}: {test}, after {took:.1f} s")

    def progress(self, done, of):
        text = f"{done} of {of} tests, {self.failed} failed"
        if self.running:
            test, since = min(self.running.items(), key=lambda item: item[1])
            if (seconds := time.monotonic() - since) >= 5:
                text += f"; {test} since {seconds:.0f} s"
        return text

    def show(self, text, is_last):
        text = f"{self.name}: {text}, {clock(time.monotonic() - self.began)}"
        if self.on_terminal:
            columns = shutil.get_terminal_size().columns
            print(f"\r\033[K{text[:columns - 1]}", end="\n" if is_last else "", flush=True)
        elif is_last or time.monotonic() - self.shown_at >= QUIET_S:
            self.shown_at = time.monotonic()
            print(text, flush=True)

    def print(self, line):
        print(("\r\033[K" if self.on_terminal else "") + line, flush=True)


def cases(reports):
    """(name, seconds, status) of every test; the name includes the build folder of its report."""
    for report in map(pathlib.Path, reports):
        if not report.is_file():
            continue
        for case in xml.etree.ElementTree.parse(report).iter("testcase"):
            name = case.get("name").split("  # ")[0]
            yield f"{name} ({report.stem})", float(case.get("time")), case.get("status")


def main():
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "follow":
        follower = Follower(arguments[0])
        for line in sys.stdin:
            follower.read(line)
    elif command == "counts":
        statuses = [status for _, _, status in cases(arguments)]
        passed, failed = statuses.count("run"), statuses.count("fail")
        print(passed, failed, len(statuses) - passed - failed)
    elif command == "failed":
        print("".join(f"failed: {name}\n" for name, _, status in cases(arguments) if status == "fail"), end="")
    elif command == "slowest":
        slowest = sorted(cases(arguments[1:]), key=lambda case: -case[1])[: int(arguments[0])]
        print("".join(f"{seconds:6.1f} s  {name}\n" for name, seconds, _ in slowest), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
