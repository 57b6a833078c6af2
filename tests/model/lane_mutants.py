#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lane_mutants.py ROOT COMPILER: builds the tests of lane_sequences.h against copies of it with one
fault each. Every copy must fail its tests, and the header as it is must pass.

Exit status 0; 1 if a fault is not found or no longer applies; 77 on another processor than x86-64,
whose tests interrupt no sequence.
"""

import concurrent.futures
import os
import pathlib
import platform
import subprocess
import sys
import tempfile

HEADER = "idd/shm/lane_sequences.h"

# Name, text of the header, text in its place. The first occurrence is that of x86-64.
FAULTS = (
    ("claim: the sequence is not announced", '"movq %[scratch], %%fs:8(%[rseq])\\n\\t"', '""'),
    ("claim: two ids are passed over", '"leaq 1(%[first]), %[scratch]\\n\\t"',
     '"leaq 2(%[first]), %[scratch]\\n\\t"'),
    ("claim: the id after the last", '"cmpq %[limit], %[first]\\n\\t"\n      "jae 2f\\n\\t"',
     '"cmpq %[limit], %[first]\\n\\t"\n      "ja 2f\\n\\t"'),
    ("claim: an abort keeps the id",
     '"movq %[scratch], 64(%[lane])\\n\\t" IDD_SEQUENCE_END("xorl %k[first], %k[first]\\n\\t"',
     '"movq %[scratch], 64(%[lane])\\n\\t" IDD_SEQUENCE_END("nop\\n\\t" "jmp 2b\\n\\t"'),
    ("batch: more than the lane has", '"cmovbq %[scratch], %[taken]\\n\\t"', '""'),
    ("a lane for every CPU number", '"cmpq %[count], %[lane]\\n\\t"', '"cmpq $-1, %[lane]\\n\\t"'),
    ("installation: limit before next",
     '"movq %[next], 64(%[lane])\\n\\t"\n      "movq %[limit], 72(%[lane])\\n\\t"',
     '"movq %[limit], 72(%[lane])\\n\\t"\n      "movq %[next], 64(%[lane])\\n\\t"'),
    ("installation: over a live block", '"cmpq %[scratch], 64(%[lane])\\n\\t"\n      "jb 2f\\n\\t"', '""'),
    ("installation: blocks need not rise", '"cmpq %[scratch], %[first]\\n\\t"\n      "jb 2f\\n\\t"', '""'),
    ("installation: an abort counts as done", 'IDD_SEQUENCE_END("movl $1, %[result]\\n\\t")',
     'IDD_SEQUENCE_END("movl $0, %[result]\\n\\t")'),
    ("giving up: another segment's block", '"cmpq %[segment], 80(%[lane])\\n\\t"\n      "jne 2f\\n\\t"', '""'),
    ("giving up: another block", '"cmpq %[limit], 72(%[lane])\\n\\t"\n      "jne 2f\\n\\t"', '""'),
    ("giving up: an abort counts as done", 'IDD_SEQUENCE_END("movl $0, %[whole]\\n\\t")',
     'IDD_SEQUENCE_END("movl $1, %[whole]\\n\\t")'),
    ("look: number 0 is a segment", "if (grant.segment == 0) [[unlikely]]", "if (false)"),
    ("look: the slot's number is not compared",
     "return slot.segment.load(std::memory_order_relaxed) == grant.segment;", "return true;"),
    ("look: no base", "grant.first < base || grant.first >= limit", "grant.first >= limit"),
)


def passes(root, compiler, text):
    """Whether the tests pass against a header with this text."""
    with tempfile.TemporaryDirectory(prefix="idd-mutant.") as folder:
        copy = pathlib.Path(folder) / HEADER
        copy.parent.mkdir(parents=True)
        copy.write_text(text, encoding="utf-8")
        program = pathlib.Path(folder) / "test"
        subprocess.run(
            [compiler, "-std=c++20", "-O1", "-w", f"-I{folder}", f"-I{root}/shm/include",
             f"-I{root}/tests/unit", str(root / "tests/unit/lane_sequences_test.cc"), "-o",
             str(program), "-lgtest", "-lgtest_main", "-pthread"], check=True)
        run = subprocess.run(["timeout", "60", str(program)], check=False, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL)
        return run.returncode == 0


def main():
    if platform.machine() != "x86_64":
        print("skipped: the sequences are interrupted on x86-64 only")
        return 77
    root, compiler = pathlib.Path(sys.argv[1]), sys.argv[2]
    original = (root / "shm/include" / HEADER).read_text(encoding="utf-8")
    wrong = 0
    runs = [("as it is", original, True)]
    for name, old, new in FAULTS:
        if old not in original:
            print(f"{name}: no longer applies; adapt it to the header")
            wrong += 1
            continue
        runs.append((name, original.replace(old, new, 1), False))
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda run: passes(root, compiler, run[1]), runs)
        for (name, _, expected), passed in zip(runs, results):
            good = passed == expected
            wrong += not good
            print(f"{name:42} {'passed' if passed else 'failed'}{'' if good else '  WRONG'}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
