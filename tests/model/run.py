#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run.py [all | NAME...]: explores ring.pml in full, and every variant of it that must be rejected
(all: and those that must be accepted), and prints a table.

Exit status 1 if a verdict is not the expected one or a search was cut short, 77 if spin or gcc is
not installed. With names, only those lines of the table; then it also prints the trail of an error.
IDD_MODEL_SECONDS and IDD_MODEL_MEMORY_MB raise the limits of a search, for searches that no test
runs.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

FOLDER = pathlib.Path(__file__).resolve().parent
MEMORY_MB = int(os.environ.get("IDD_MODEL_MEMORY_MB", "1500"))
IS_LONG = MEMORY_MB > 1500
DEPTH = 30_000_000 if IS_LONG else 200_000
# For one search; a search that takes longer counts as cut short.
SECONDS = int(os.environ.get("IDD_MODEL_SECONDS", "120"))

DEFAULTS = {"SLOTS": 2, "CLAIMERS": 1, "BATCH": 2, "SEGMENTS": 3, "DRAINS": 1, "WAITERS": 0}


def define(*flags, **numbers):
    return [f"-D{flag}" for flag in flags] + [
        f"-D{name}={value}" for name, value in {**DEFAULTS, **numbers}.items()
    ]


ORDERS = {"DRAINS": 0}
FORGED = {"HOSTILE": 1}

QUICK = ("QUICK", "ENDS_STAND")
FEWER = ("LOOKUP_IN_ONE_STEP", "RETIRE_IN_ONE_STEP", "ENDS_STAND")
KILL = {"DRAINS": 0, "KILLED": 1}
MOVED = ("MOVES", *QUICK)

# The model itself.
MODEL_RUNS = {
    "one claimer": define(*QUICK, WAITERS=1),
    "one claimer, ends forgotten": define(WAITERS=1),
    "one claimer, four segments": define(
        "QUICK", "RETIRE_IN_ONE_STEP", "ENDS_STAND", SEGMENTS=4, DRAINS=0),
    "two claimers": define(*FEWER, CLAIMERS=2, BATCH=1, DRAINS=0),
    "two claimers, drain": define(*FEWER, CLAIMERS=2, BATCH=1, SLOTS=1, SEGMENTS=2),
    "two claimers, every step": define(
        "ENDS_STAND", CLAIMERS=2, BATCH=1, SLOTS=1, SEGMENTS=2, DRAINS=0),
    "two threads of one view": define(
        "SHARED_VIEW", "RETIRE_IN_ONE_STEP", "ENDS_STAND", CLAIMERS=2, BATCH=1, SEGMENTS=2, DRAINS=0),
    "killed": define(**KILL),
    "killed in a drain, and twice": define("ENDS_STAND", KILLED=2, SEGMENTS=2),
    "forged": define(*FEWER, **FORGED),
    "forged, ends forgotten": define(SLOTS=1, **FORGED),
    "forged twice": define(*FEWER, HOSTILE=2, BATCH=1, SEGMENTS=2),
    "moved": define("MOVES", "QUICK", *FEWER),
    "moved, ends forgotten": define("MOVES"),
    "moved by two claimers": define(
        "MOVES", *FEWER, CLAIMERS=2, BATCH=1, SLOTS=1, SEGMENTS=2),
    "moved by two threads of one view": define(
        "MOVES", "SHARED_VIEW", *FEWER, CLAIMERS=2, BATCH=1, SEGMENTS=2, DRAINS=0),
    "moved by the daemon": define("MOVES", "DAEMON_MOVES", *FEWER),
    "moved, killed": define("MOVES", "DAEMON_MOVES", *FEWER, **KILL),
    "moved, killed in a drain, and twice": define(
        "MOVES", "ENDS_STAND", KILLED=2, SEGMENTS=2),
    "moved, forged": define("MOVES", *FEWER, **FORGED),
}

# Each must be rejected.
MUTANTS = {
    "NO_SEGMENT_CHECK": define(*QUICK, "TWICE_ONLY", "NO_SEGMENT_CHECK"),
    "SEGMENT_CHECK_BEFORE_ADD": define(*QUICK, "TWICE_ONLY", "SEGMENT_CHECK_BEFORE_ADD"),
    "SEGMENT_CHECK_BEFORE_LIMIT": define(*QUICK, "TWICE_ONLY", "SEGMENT_CHECK_BEFORE_LIMIT"),
    "LIMIT_BEFORE_CURSOR, NO_SEGMENT_CHECK": define(
        *QUICK, "TWICE_ONLY", "LIMIT_BEFORE_CURSOR", "NO_SEGMENT_CHECK"),
    "NO_P1_NO_D1": define(*QUICK, "TWICE_ONLY", "NO_P1_NO_D1"),
    "NO_PUBLISH_KNOWLEDGE": define(*QUICK, "TWICE_ONLY", "NO_PUBLISH_KNOWLEDGE"),
    "TAIL_BEFORE_CURSOR": define(*QUICK, "TWICE_ONLY", "TAIL_BEFORE_CURSOR"),
    "CURSOR_AT_BASE": define(*QUICK, "TWICE_ONLY", "CURSOR_AT_BASE", WAITERS=1),
    "DRAIN_LOAD_STORE": define(*QUICK, "DRAIN_LOAD_STORE"),
    "DRAIN_WITHOUT_D2": define(*QUICK, "DRAIN_WITHOUT_D2"),
    "RECYCLE_EARLY": define(*QUICK, "TWICE_ONLY", "RECYCLE_EARLY"),
    "BATCH_NOT_CUT": define(*QUICK, "BATCH_NOT_CUT"),
    "TAIL_BEFORE_LIMIT": define(*QUICK, "TAIL_BEFORE_LIMIT"),
    "TAIL_BEFORE_SEGMENT": define(*QUICK, "TAIL_BEFORE_SEGMENT"),
    "HEAD_BEFORE_LOOK": define(*QUICK, "HEAD_BEFORE_LOOK"),
    "STARTS_AT_TAIL": define(*QUICK, "STARTS_AT_TAIL"),
    "BASE_BELOW_EARLIER_LIMIT": define(*QUICK, "BASE_BELOW_EARLIER_LIMIT"),
    "DRAIN_OLDEST_FIRST": define(*QUICK, "DRAIN_OLDEST_FIRST"),
    "D4_BEFORE_D3": define(*QUICK, "D4_BEFORE_D3"),
    "D4_BEFORE_D2": define(*QUICK, "D4_BEFORE_D2"),
    "NO_D5": define(*QUICK, "TWICE_ONLY", "NO_D5"),
    "NO_END_COMPARED": define(*QUICK, "TWICE_ONLY", "NO_END_COMPARED"),
    "OVERTAKEN_GIVES_UP": define(*QUICK, "OVERTAKEN_GIVES_UP"),
    "CLOSE_OLDEST_FIRST": define(*QUICK, "CLOSE_OLDEST_FIRST", **KILL),
    "CLOSE_UNPUBLISHED": define("CLOSE_UNPUBLISHED", **KILL),
    "CLOSE_AGAIN": define(
        "CLOSE_AGAIN", SLOTS=1, BATCH=1, SEGMENTS=1, DRAINS=0, KILLED=4),
    "KILLED_IN_DRAIN_IS_EXACT": define("KILLED_IN_DRAIN_IS_EXACT", KILLED=1, SEGMENTS=2),
    "END_NOT_CUT, forged": define("END_NOT_CUT", **FORGED),
    "NO_C8, forged": define("NO_C8", SLOTS=1, DRAINS=2, **FORGED),
    "D2_BEFORE_D1, forged": define("D2_BEFORE_D1", **FORGED),
    "NO_BASE_CHECK, forged": define("NO_BASE_CHECK", **FORGED),
    "BASE_AFTER_SEGMENT, forged": define("BASE_AFTER_SEGMENT", **FORGED),
    "NO_D1, forged": define("NO_D1", **FORGED),
    "MOVE_BY_STORE": define(*MOVED, "TWICE_ONLY", "MOVE_BY_STORE"),
    "MOVE_BACK": define(*MOVED, "TWICE_ONLY", "MOVE_BACK"),
    "MOVE_TRIES_AGAIN_BLINDLY": define(*MOVED, "TWICE_ONLY", "MOVE_TRIES_AGAIN_BLINDLY"),
    "MOVE_TO_OLD_LIMIT": define(*MOVED, "TWICE_ONLY", "MOVE_TO_OLD_LIMIT"),
    "MOVE_REOPENS, killed": define("MOVES", "TWICE_ONLY", "MOVE_REOPENS", **KILL),
    "MOVE_WITHOUT_LIMIT": define(*MOVED, "MOVE_WITHOUT_LIMIT"),
    "MOVE_WITHOUT_LIMIT, killed": define(
        "MOVES", "TWICE_ONLY", "MOVE_WITHOUT_LIMIT", **KILL),
    "MOVED_IS_CLAIMED": define(*MOVED, "MOVED_IS_CLAIMED"),
    "LIMIT_BEFORE_CURSOR, moved": define(*MOVED, "LIMIT_BEFORE_CURSOR"),
}

# Each must be accepted: something else also ensures what it removes (README.md).
REDUNDANT = {
    # The model itself, in a search that takes too long for daily runs.
    "two claimers and a third": define("QUICK", *FEWER, CLAIMERS=2, BATCH=1, DRAINS=0),
    "LIMIT_BEFORE_CURSOR": define(*QUICK, "LIMIT_BEFORE_CURSOR", **ORDERS),
    "LIMIT_BEFORE_CURSOR, forged": define("LIMIT_BEFORE_CURSOR", **ORDERS, **FORGED),
    "BASE_AFTER_LIMIT": define(*QUICK, "BASE_AFTER_LIMIT", **ORDERS),
    "BASE_AFTER_LIMIT, forged": define("BASE_AFTER_LIMIT", **ORDERS, **FORGED),
    "BASE_AFTER_SEGMENT": define(*QUICK, "BASE_AFTER_SEGMENT", **ORDERS),
    "SEGMENT_BEFORE_LIMIT": define(*QUICK, "SEGMENT_BEFORE_LIMIT", **ORDERS),
    "NO_BASE_CHECK": define(*QUICK, "NO_BASE_CHECK", **ORDERS),
    "NO_C8": define(*QUICK, "NO_C8"),
    "END_NOT_CUT": define(*QUICK, "END_NOT_CUT"),
    "D1_BEFORE_D3": define(*QUICK, "D1_BEFORE_D3"),
    "D2_BEFORE_D1": define(*QUICK, "D2_BEFORE_D1"),
    "NO_P1": define(*QUICK, "NO_P1", **ORDERS),
    "NO_P1, forged": define("NO_P1", **ORDERS, **FORGED),
    "NO_D1": define(*QUICK, "NO_D1"),
    "moved by two claimers, recycled": define("MOVES", *FEWER, CLAIMERS=2, BATCH=1, DRAINS=0),
    "moved by two claimers and the daemon": define(
        "MOVES", "DAEMON_MOVES", *FEWER, CLAIMERS=2, BATCH=1, SLOTS=1, SEGMENTS=2),
    "MOVE_LIMIT_FIRST": define(*MOVED, "MOVE_LIMIT_FIRST"),
}


def command(arguments, folder):
    # `timeout` ends the search even if this script is killed.
    run = subprocess.run(["timeout", str(SECONDS), *arguments], cwd=folder, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    return run.returncode, run.stdout


def explore(model, defines, optimize, want_trail, options=()):
    """(verdict, states, seconds, trail); the verdict is `accepted`, `rejected: ...` or an error."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="idd-model.") as folder:
        status, out = command(["spin", "-a", *defines, str(FOLDER / model)], folder)
        if status != 0 or not (pathlib.Path(folder) / "pan.c").exists():
            return "spin failed: " + out, 0, 0, ""
        # Stores a hash of each state in place of the state: some 20 bytes.
        store = ["-DHC4"] if IS_LONG else []
        status, out = command(["gcc", "-O2" if IS_LONG else optimize, "-w", "-DSAFETY", *store,
                               f"-DMEMLIM={MEMORY_MB}", "-o", "pan", "pan.c"], folder)
        if status != 0:
            return "gcc failed: " + out, 0, 0, ""
        status, out = command(["./pan", f"-m{DEPTH}", *(["-w27"] if IS_LONG else []), *options], folder)
        trail = ""
        if want_trail and (pathlib.Path(folder) / f"{model}.trail").exists():
            trail = command(["spin", "-k", f"{model}.trail", "-p", "-g", *defines,
                             str(FOLDER / model)], folder)[1]
    errors = re.search(r"errors: (\d+)", out)
    states = re.search(r"(\S+) states, stored", out)
    violated = re.search(r"assertion violated (.*) \(at", out)
    if status == 124:
        verdict = "cut short: time"
    elif status != 0 or errors is None or states is None:
        verdict = "failed: " + out
    elif (re.search(r"(Full statespace|Hash-Compact \d) search", out) is None
          or "max search depth too small" in out):
        verdict = "cut short: depth"
    elif errors[1] == "0":
        cut_short = "Search not completed" in out or "MEMLIM" in out or "out of memory" in out
        verdict = "cut short" if cut_short else "accepted"
    elif violated is not None:
        verdict = "rejected: " + re.sub(r"[!() ]", "", violated[1])
    else:
        verdict = "failed: " + out
    return verdict, int(float(states[1])) if states else 0, time.monotonic() - started, trail


def explore_all(model, runs, want_trails, options=()):
    """Explores each of `runs`, (name, defines, expected verdict), and prints a table."""
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            return 77
    wrong = 0 if runs else 1
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        # An error is found quickly; a full search is worth the compiler's optimisation.
        results = pool.map(
            lambda run: explore(model, run[1], "-O2" if run[2] == "accepted" else "-O0", want_trails,
                                options), runs)
        for (name, _, expected), (verdict, states, seconds, trail) in zip(runs, results):
            good = verdict.split(":")[0] == expected
            wrong += not good
            print(f"{name:38} {verdict:28} {states:>9} {seconds:6.1f} s{'' if good else '  WRONG'}",
                  flush=True)
            if trail:
                print(trail)
    print(f"{len(runs)} searches, {wrong} with a wrong verdict")
    return 1 if wrong else 0


def table(accepted, rejected):
    return ([(name, defines, "accepted") for name, defines in accepted.items()]
            + [(name, defines, "rejected") for name, defines in rejected.items()])


def explore_tables(model, tested, long, options=()):
    """The program of a model with two tables, each of searches to be accepted and to be rejected:
    without arguments `tested`, with `long` that, with names those lines of both."""
    names = sys.argv[1:]
    runs = table(*tested)
    if names == ["long"]:
        runs = table(*long)
    elif names:
        runs = [search for search in runs + table(*long) if search[0] in names]
    return explore_all(model, runs, names not in ([], ["long"]), options=options)


def main():
    runs = (
        [(name, defines, "accepted") for name, defines in MODEL_RUNS.items()]
        + [(name, defines, "rejected") for name, defines in MUTANTS.items()]
        + [(name, defines, "accepted") for name, defines in REDUNDANT.items()]
    )
    names = sys.argv[1:]
    if not names:
        runs = [run for run in runs if run[0] not in REDUNDANT]
    elif names != ["all"]:
        runs = [run for run in runs if run[0] in names]
    return explore_all("ring.pml", runs, names not in ([], ["all"]))


if __name__ == "__main__":
    sys.exit(main())
