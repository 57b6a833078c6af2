#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""log_events.py ROOT: docs/log-events.md has a row for every event that the daemon's source logs, with
its level and its fields, and no row for one that it does not log.

A row is `| event | level | fields | ... |`; an event with one row may be logged at several places.
"""

import pathlib
import re
import sys

TABLE = pathlib.PurePath("docs", "log-events.md")
CALL = re.compile(r"\blog::(Debug|Info|Warning|Error|Write)\(")
EVENT = re.compile(r'\s*"([a-z_]+(?:\.[a-z_]+)+)"\s*,')
# The logger itself writes this line, not a log:: function: the number of lines that were left out.
OWN = {"log.suppressed": ("warning", {"of", "suppressed"})}
OWN_FILE = "logging.cc"
FIELD = re.compile(r'\{\s*"([a-z_]+)"\s*,')
STRING = re.compile(r'"(?:\\.|[^"\\])*"')
ROW = re.compile(r"^\|\s*`([a-z_]+(?:\.[a-z_]+)+)`\s*\|([^|]*)\|([^|]*)\|(.*)\|\s*$")


class Event:
    def __init__(self, where):
        self.where = where
        self.levels = set()
        self.fields = set()


def arguments(text, start):
    """The text between the parenthesis before `start` and its partner."""
    # Brackets in strings do not count. The replacement has the same length, so that positions stay.
    blank = STRING.sub(lambda match: "_" * len(match.group(0)), text)
    depth = 1
    for at in range(start, len(blank)):
        depth += {"(": 1, ")": -1}.get(blank[at], 0)
        if depth == 0:
            return text[start:at]
    return text[start:]


def logged(root, findings):
    """The events of the source, by name."""
    events = {}
    for path in sorted((root / "daemon").rglob("*")):
        if path.suffix not in (".h", ".cc"):
            continue
        text = re.sub(r"^\s*//.*", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for call in CALL.finditer(text):
            where = f"{path}:{text.count(chr(10), 0, call.start()) + 1}"
            inside = arguments(text, call.end())
            event = EVENT.match(inside)
            if event is None or call.group(1) == "Write":
                findings.append(f"{where}: log an event by a name that is a literal here, so that a search finds it")
                continue
            entry = events.setdefault(event.group(1), Event(where))
            entry.levels.add(call.group(1).lower())
            entry.fields |= set(FIELD.findall(inside))
        for name, (level, fields) in OWN.items():
            if path.name == OWN_FILE and f'"{name}"' in text:
                events[name] = Event(f"{path}:1")
                events[name].levels, events[name].fields = {level}, fields
    return events


def check_row(where, event, cells):
    level, fields, rest = cells
    if level.strip() not in event.levels or len(event.levels) > 1:
        yield f"{where}: its level is {', '.join(sorted(event.levels))}, not {level.strip()}"
    told = set(re.findall(r"`([a-z_]+)`", fields))
    for field in sorted(event.fields - told):
        yield f"{where}: it has a field {field}"
    for field in sorted(told - event.fields):
        yield f"{where}: it has no field {field}"
    if rest.count("|") < 1 or not all(cell.strip() for cell in rest.split("|")):
        yield f"{where}: say when it is logged and what to do"


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    findings = []
    events = logged(root, findings)
    table = root / TABLE
    seen = set()
    lines = table.read_text(encoding="utf-8").splitlines() if table.exists() else []
    for number, line in enumerate(lines, 1):
        row = ROW.match(line)
        if row is None:
            continue
        name = row.group(1)
        where = f"{table}:{number}: {name}"
        if name in seen:
            findings.append(f"{where}: has another row")
        seen.add(name)
        if name in events:
            findings += check_row(where, events[name], row.groups()[1:])
        else:
            findings.append(f"{where}: nothing logs it")
    for name in sorted(events.keys() - seen):
        findings.append(f"{events[name].where}: {name} has no row in {TABLE}")
    if not events:
        findings.append(f"{root / 'daemon'}:1: nothing is logged there")
    print("\n".join(findings))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
