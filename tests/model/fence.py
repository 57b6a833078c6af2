#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fence.py [long | NAME...]: explores fence.pml in full, and variants of it that must be
rejected, and prints a table. long: searches that take minutes and gigabytes (README.md); no test
runs them.

Exit status as in run.py. With names, only those lines of the tables; then it also prints the trail
of an error.
"""

import sys

import run

# `set` 0 and a copy of it; a third set where one more failover is needed.
DEFAULTS = {"HOSTS": 2, "SETS": 2, "LEASES": 3, "RAISES": 2, "CHANGES": 1, "TICKS": 1}


def define(*flags, **numbers):
    return [f"-D{flag}" for flag in flags] + [
        f"-D{name}={value}" for name, value in {**DEFAULTS, **numbers}.items()
    ]


AGAIN = {"SETS": 3, "MEMBERS": 1, "CHANGES": 2}
FIRST_LEASE = {"LEASES": 2, "RAISES": 0, "TICKS": 0}
SECOND_COPY = {"SETS": 3, "LEASES": 2, "RAISES": 1, "CHANGES": 3, "TICKS": 0}
DISK_FULL = {"LEASES": 2, "RAISES": 1}
IN_PLACE = {"SETS": 1, "LEASES": 2, "RAISES": 1, "CHANGES": 0, "TICKS": 0}

# The model itself.
MODEL_RUNS = {
    "first leases after a failover": define(MEMBERS=1, **FIRST_LEASE),
    "proxy, first leases": define("PROXY", **{**FIRST_LEASE, "CHANGES": 0}),
    "members that a copy has otherwise": define("NUMBERS", "OLD_COPY", **SECOND_COPY),
    "disk full": define("SELF_OUT", **DISK_FULL),
    "restored in place": define("RESTORED", **IN_PLACE),
    "restored in place, marks put off": define("RESTORED", "MARKS_PUT_OFF", **IN_PLACE),
}

# Each must be rejected.
MUTANTS = {
    "PUSH_NOTHING": define("PUSH_NOTHING", MEMBERS=1, **FIRST_LEASE),
    "WITHOUT_WAITING": define("WITHOUT_WAITING", MEMBERS=1, **FIRST_LEASE),
    "NEW_IS_COMPLETE": define("NEW_IS_COMPLETE", MEMBERS=1, **FIRST_LEASE),
    "NO_IDENTITY_IN_LEASE, proxy": define(
        "NO_IDENTITY_IN_LEASE", "PROXY", **{**FIRST_LEASE, "CHANGES": 0}),
    "NO_OWN_ROW_IN_LEASE, restored": define("NO_OWN_ROW_IN_LEASE", "RESTORED", **IN_PLACE),
    "NO_GAP, restored": define("NO_GAP", "RESTORED", **IN_PLACE),
    "NOTES_ARE_NO_MARKS, restored": define(
        "NOTES_ARE_NO_MARKS", "RESTORED", "MARKS_PUT_OFF", **IN_PLACE),
    "ONLY_MISSING_ADMITTED, numbers": define(
        "ONLY_MISSING_ADMITTED", "NUMBERS", "OLD_COPY", **{**SECOND_COPY, "CHANGES": 2}),
    "NUMBER_AT_CONNECTION, numbers": define(
        "NUMBER_AT_CONNECTION", "NUMBERS", "OLD_COPY", **SECOND_COPY),
    "SELF_OUT_COMPLETE, disk full": define("SELF_OUT_COMPLETE", **DISK_FULL),
    "MEMBER_FORGOTTEN": define("MEMBER_FORGOTTEN"),
    "NO_CEILING": define("NO_CEILING", TICKS=0),
    "NOTE_ACTIVE": define("NOTE_ACTIVE"),
    "NOTED_BEFORE_NOTE": define("NOTED_BEFORE_NOTE", CHANGES=2),
    "EPOCH_WITHOUT_ROW_LOCK": define("EPOCH_WITHOUT_ROW_LOCK"),
    "JOIN_READS_FIRST": define("JOIN_READS_FIRST", MEMBERS=1),
    "ANY_SERVER, replica watched": define(
        "ANY_SERVER", "REPLICA", MEMBERS=1, **{**FIRST_LEASE, "RAISES": 1, "CHANGES": 0}),
    "LEFT_IS_COMPLETE": define("LEFT_IS_COMPLETE", LEAVES=1),
}

# Too long for a test: expected to be accepted, and to be rejected.
LONG_RUNS = {
    "members that a copy has otherwise, 4 changes": define(
        "NUMBERS", "OLD_COPY", **{**SECOND_COPY, "CHANGES": 4}),
    "failover": define(TICKS=2),
    "failover and back": define(CHANGES=2),
    "failover, a new host": define(MEMBERS=1),
    "failover, and another": define(**AGAIN),
    "proxy": define("PROXY", MEMBERS=1, LEASES=2, RAISES=1),
    "proxy, and another server": define("PROXY", **{**FIRST_LEASE, "SETS": 3, "MEMBERS": 1}),
    "proxy, restarted with older data": define("PROXY", "SAME_NAME", MEMBERS=1, **FIRST_LEASE),
    "replica watched": define("REPLICA", MEMBERS=1, LEASES=2, RAISES=1),
    "restored in place, and reconnected": define("RESTORED", **{**IN_PLACE, "LEASES": 3, "CHANGES": 2}),
    "clean stop": define(LEAVES=1),
    "all came": define("ALL_CAME", LEASES=2, RAISES=1),
}

LONG_MUTANTS = {
    "MEMBERS_NOT_CARRIED": define("MEMBERS_NOT_CARRIED", TICKS=2),
    "JOINER_IS_COMPLETE": define("JOINER_IS_COMPLETE", TICKS=2),
    "NOT_RECENT": define("NOT_RECENT", TICKS=2),
    "NOTE_WITHOUT_MAX_ID": define("NOTE_WITHOUT_MAX_ID", **AGAIN),
    "READ_IN_PAGES": define("READ_IN_PAGES", TAGS=2),
    "STALE_IS_COMPLETE": define("STALE_IS_COMPLETE", TICKS=2),
    "JUDGED_ONCE": define("JUDGED_ONCE", TICKS=2),
    "OUT_WITHOUT_BEAT": define("OUT_WITHOUT_BEAT", TICKS=2),
    "OUT_NOT_NOTICED": define("OUT_NOT_NOTICED", TICKS=2),
    "CONFIRMED_AT_END": define("CONFIRMED_AT_END", TICKS=3),
    "NO_IDENTITY_IN_JOIN, proxy": define(
        "NO_IDENTITY_IN_JOIN", "PROXY", **{**FIRST_LEASE, "SETS": 3, "MEMBERS": 1}),
    "NO_IDENTITY_IN_BEAT, proxy": define(
        "NO_IDENTITY_IN_BEAT", "PROXY", "SAME_NAME", MEMBERS=1, **FIRST_LEASE),
    "OVERLAP": define("OVERLAP", SETS=3, CHANGES=3, LEASES=2),
    "AFTER_A_TIME": define("AFTER_A_TIME", TICKS=2, CHANGES=2),
}


if __name__ == "__main__":
    # -E: a host that can do nothing more has stopped.
    sys.exit(run.explore_tables("fence.pml", (MODEL_RUNS, MUTANTS), (LONG_RUNS, LONG_MUTANTS), options=["-E"]))
