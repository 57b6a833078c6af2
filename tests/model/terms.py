#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""terms.py [long | NAME...]: explores terms.pml in full, and variants of it that must be rejected,
and prints a table. long: searches that take minutes and gigabytes (README.md); no test runs them.

Exit status as in run.py. With names, only those lines of the tables; then it also prints the trail
of an error.
"""

import sys

import run

DEFAULTS = {"WITNESSES": 3, "NUMBERS": 2, "TAGS": 1, "IDS": 1, "COPIES": 1, "LISTS": 0}


def define(*flags, **numbers):
    return [f"-D{flag}" for flag in flags] + [
        f"-D{name}={value}" for name, value in {**DEFAULTS, **numbers}.items()
    ]


CHANGE = {"WITNESSES": 4, "LISTS": 1}

MODEL_RUNS = {
    "one id": define(),
    "empty at first": define("QUICK", "EMPTY"),
    "two tags": define("QUICK", TAGS=2),
    "two ids": define("QUICK", IDS=2),
    "two copies": define("QUICK", COPIES=2),
    "three numbers, two copies": define("QUICK", NUMBERS=3, COPIES=2),
}

# Each must be rejected.
MUTANTS = {
    name: define(name)
    for name in (
        "MINORITY", "KEEP_ACTIVE", "NO_PUSH", "NOTE_WITHOUT_PROMISE", "REPROMISE",
        "GOES_ON_WITHOUT_ITS_DISK", "NO_IDENTITY_IN_LEASE")
}
MUTANTS["PLACE_FIRST"] = define("EMPTY", "PLACE_FIRST")
MUTANTS["PLAN_IS_TRUSTED"] = define("PLAN_IS_TRUSTED")
MUTANTS["PUSH_ONE_TAG"] = define("PUSH_ONE_TAG", TAGS=2)
MUTANTS["LIST_WITHOUT_THE_OLD"] = define("QUICK", "LIST_WITHOUT_THE_OLD", **CHANGE)

# Too long for a test: expected to be accepted, and to be rejected.
LONG_RUNS = {
    "another list": define("QUICK", **CHANGE),
}

LONG_MUTANTS = {
    name: define("QUICK", name, **CHANGE)
    for name in (
        "NEWEST_LIST_ALONE", "OLD_LIST_ALONE", "LIST_AT_ONCE", "LIST_NOT_ENTERED",
        "LIST_WITHOUT_CEILINGS")
}


if __name__ == "__main__":
    # -E: a witness that can do nothing more has stopped.
    sys.exit(run.explore_tables("terms.pml", (MODEL_RUNS, MUTANTS), (LONG_RUNS, LONG_MUTANTS), options=["-E"]))
