#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the simulator with each deliberate fault of faults/ in the product and counts the seeds
until one breaks a promise.

usage: faults.py [--seeds N] [--steps N] [--two-primaries] [NAME...]

Works on a copy of the tree in build/faults. The exit status is 1 if a fault is not found.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATCHES = pathlib.Path(__file__).resolve().parent / "faults"
TREE = ROOT / "build" / "faults"
PROGRAM = TREE / "build" / "bench" / "bin" / "idd_simulation"
SEEDS_OF_A_RUN = 50


def copy_tree():
    """Copies what has changed, so that a second call builds little."""
    files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                           cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout.split(b"\0")
    for name in filter(None, map(os.fsdecode, files)):
        source, target = ROOT / name, TREE / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
        os.utime(target)


def build():
    """False: the tree does not compile."""
    log = TREE / "build.log"
    with log.open("w", encoding="utf-8") as output:
        for command in (["cmake", "--preset", "bench"],
                        ["cmake", "--build", "build/bench", "--target", "idd_simulation"]):
            if subprocess.run(command, cwd=TREE, stdout=output, stderr=output, check=False).returncode:
                print(log.read_text(encoding="utf-8")[-4000:])
                return False
    return True


def run(seed, options):
    """(first failure of these seeds, or None; how many seeds it took)."""
    done = subprocess.run([PROGRAM, "--seed", str(seed), "--seeds", str(SEEDS_OF_A_RUN),
                           "--first-failure", *options], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False, timeout=900)
    for line in done.stdout.splitlines():
        if line.startswith("seed "):
            return line, int(line.split()[1].rstrip(":"))
    if done.returncode:
        return f"seeds from {seed}: the program ended with {done.returncode}", seed
    return None, 0


def hunt(most, options):
    """The failure of the lowest seed that fails, and that seed."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for first in range(1, most + 1, SEEDS_OF_A_RUN * os.cpu_count()):
            starts = range(first, first + SEEDS_OF_A_RUN * os.cpu_count(), SEEDS_OF_A_RUN)
            for failure, seed in pool.map(lambda start: run(start, options), starts):
                if failure is not None:
                    return failure, seed
    return None, most


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10_000, help="at most so many (10000)")
    parser.add_argument("--steps", type=int, default=40, help="incidents in each run (40)")
    parser.add_argument("--two-primaries", action="store_true",
                        help="only the seeds, one in ten, in which two primaries are in use")
    parser.add_argument("names", nargs="*", help="faults (all)")
    arguments = parser.parse_args()
    names = arguments.names or sorted(patch.stem for patch in PATCHES.glob("*.patch"))
    options = ["--steps", str(arguments.steps)]
    options += ["--two-primaries"] if arguments.two_primaries else []
    copy_tree()
    missed = []
    for name in names:
        patch = PATCHES / f"{name}.patch"
        applied = subprocess.run(["patch", "--strip=1", "--input", patch], cwd=TREE, text=True,
                                 stdout=subprocess.PIPE, check=False)
        if applied.returncode:
            sys.exit(f"{name} does not apply:\n{applied.stdout}")
        began = time.monotonic()
        try:
            failure, seed = hunt(arguments.seeds, options) if build() else ("", 0)
        finally:
            subprocess.run(["patch", "--strip=1", "--reverse", "--input", patch], cwd=TREE,
                           stdout=subprocess.DEVNULL, check=True)
        if not failure:
            missed.append(name)
        print(f"{name}: " + (f"found by seed {seed}: {failure}" if failure else
                             f"NOT found in {seed} seeds") + f" ({time.monotonic() - began:.0f} s)",
              flush=True)
    print(f"{len(names) - len(missed)} of {len(names)} found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
