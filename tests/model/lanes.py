#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lanes.py [long | NAME...]: explores lanes.pml in full, and variants of it that must be
rejected, and prints a table. long: searches that take minutes and gigabytes (README.md); no test
runs them.

Exit status as in run.py. With names, only those lines of the tables; then it also prints the trail
of an error.
"""

import sys

import run


def define(*flags, **numbers):
    return [f"-D{flag}" for flag in flags] + [f"-D{name}={value}" for name, value in numbers.items()]


SMALL = {"IDS_OF_SEGMENT": 3}

# The model itself.
MODEL_RUNS = {
    "two claimers on one CPU": define(),
    "two claimers on one CPU, drain": define("DRAIN"),
    "two claimers on one CPU, killed": define("DRAIN", KILLS=1, **SMALL),
    "two claimers on one CPU, slot needed": define("RECYCLED", **SMALL),
    "two claimers on one CPU, later daemon": define("LATER_DAEMON", **SMALL),
    "one claimer on two CPUs, drain": define("DRAIN", THREADS=1, CPUS=2),
    "one claimer on two CPUs, later daemon": define("LATER_DAEMON", THREADS=1, CPUS=2),
    "one claimer, hostile": define("HOSTILE", "DRAIN", THREADS=1, **SMALL),
}

# Each must be rejected.
MUTANTS = {
    "CLAIM_OUTSIDE": define("CLAIM_OUTSIDE"),
    "INSTALL_OUTSIDE": define("INSTALL_OUTSIDE"),
    "GIVE_UP_OUTSIDE": define("GIVE_UP_OUTSIDE", "RECYCLED", IDS_OF_SEGMENT=4),
    "LIMIT_BEFORE_NEXT": define("LIMIT_BEFORE_NEXT"),
    "CPU_BEFORE_SEQUENCE": define("CPU_BEFORE_SEQUENCE", CPUS=2),
    "LOCKED_ADD": define("LOCKED_ADD", CPUS=2),
    "TWO_NUMBERS": define("TWO_NUMBERS", CPUS=2),
    "OVER_A_LIVE_BLOCK": define("OVER_A_LIVE_BLOCK"),
    "NEED_NOT_RISE": define("NEED_NOT_RISE"),
    "NO_LOOK, drain": define("NO_LOOK", "DRAIN"),
    "NO_LOOK, hostile": define("NO_LOOK", "HOSTILE", THREADS=1),
    "ZERO_IS_A_SEGMENT, hostile": define("ZERO_IS_A_SEGMENT", "HOSTILE", THREADS=1),
}

# Too long for a test: expected to be accepted.
LONG_RUNS = {
    "two claimers on two CPUs, two ids": define(CPUS=2, IDS_OF_SEGMENT=2),
    "two claimers on two CPUs, two ids, drain": define("DRAIN", CPUS=2, IDS_OF_SEGMENT=2),
    "two claimers on two CPUs": define(CPUS=2, **SMALL),
    "two claimers on two CPUs, drain": define("DRAIN", CPUS=2, **SMALL),
    "two claimers on two CPUs, killed": define("DRAIN", CPUS=2, KILLS=1, **SMALL),
    "three claimers on one CPU": define(THREADS=3, **SMALL),
    "two claimers on one CPU, hostile": define("HOSTILE", "DRAIN", **SMALL),
}


if __name__ == "__main__":
    # -E: a claimer that finds nothing more has stopped.
    sys.exit(run.explore_tables("lanes.pml", (MODEL_RUNS, MUTANTS), (LONG_RUNS, {}), options=["-E"]))
