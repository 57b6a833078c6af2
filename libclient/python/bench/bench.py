#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench.py SOCKET TAG: what a claim costs in Python, beside what Python programs do otherwise.

Medians of rounds that are interleaved, in nanoseconds per id, and the ratios. The tag needs large
segments (--step 10000000), so that no round waits. PYTHONPATH: the built client and _baseline.
"""

import itertools
import json
import statistics
import sys
import time
import uuid

import _baseline
import idclient

ROUNDS = 9
CALLS = 100_000
BATCH = 1000


def calls(function):
    def run():
        for _ in itertools.repeat(None, CALLS):
            function()
        return CALLS

    return run


def main():
    tag = idclient.Client(sys.argv[1], timeout=60).tag(sys.argv[2])
    blocks = idclient.Client(sys.argv[1], timeout=60).tag(sys.argv[2], 1024)
    buffer = tag.claim_many(BATCH)
    counter = itertools.count(1_000_000)

    def batches():
        for _ in range(CALLS // BATCH):
            tag.claim_into(buffer)
        return CALLS

    def uuids():
        for _ in range(CALLS // 10):
            uuid.uuid4()
        return CALLS // 10

    cases = {
        "an extension's int": calls(_baseline.next_id),
        "claim": calls(tag.claim),
        "claim, blocks of 1024": calls(blocks.claim),
        "next(itertools.count())": calls(counter.__next__),
        "claim_into, 1000 ids": batches,
        "uuid.uuid4()": uuids,
    }
    times = {name: [] for name in cases}
    for _ in range(ROUNDS):
        for name, run in cases.items():
            begin = time.perf_counter_ns()
            count = run()
            times[name].append((time.perf_counter_ns() - begin) / count)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, value in medians.items():
        print(f"{value:10.1f} ns  {name}", file=sys.stderr)
    base = medians["an extension's int"]
    print(
        json.dumps(
            {
                "claim_to_extension_int": round(medians["claim"] / base, 3),
                "block_claim_to_extension_int": round(medians["claim, blocks of 1024"] / base, 3),
                "uuid4_to_batch_of_1000": round(medians["uuid.uuid4()"] / medians["claim_into, 1000 ids"], 1),
            }
        )
    )


if __name__ == "__main__":
    main()
