#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One program of each language claims from one tag at once, while idd is restarted and killed.

together.py --idd IDD --idctl IDCTL --ids N --driver 'COMMAND' ...

Every id must be distinct, each program's ids must rise, and the audit must add up.
"""

import argparse
import json
import shlex
import sys
import tempfile
import time

import conformance
from conformance import expect

# In this order while the programs claim, with pauses in which they do.
DISTURBANCES = ["restart", "kill", "restart", "restart", "kill", "restart", "restart"]


def disturb(host, how):
    if how == "kill":
        host.kill()
        time.sleep(0.1)
    else:
        host.stop()
    host.start()


def claim(host, programs, ids):
    drivers = []
    for number, command in enumerate(programs.driver):
        driver = conformance.Driver(shlex.split(command))
        host.drivers.append(driver)
        driver.do(f"open {host.socket} 20000")
        driver.do("tag orders orders")
        drivers.append((driver, host.folder / f"ids{number}"))
    found = [[] for _ in drivers]
    for how in DISTURBANCES:
        for driver, path in drivers:
            driver.send(f"loop orders {ids} 1 {path}")
        time.sleep(0.01)  # the claims take longer, as leases are taken meanwhile
        disturb(host, how)
        for (driver, path), of_program in zip(drivers, found):
            answer = driver.receive()
            expect(answer.ok, f"{path.name}: {answer.line}")
            of_program += conformance.read_loop(path, 1, ids)[0]
    return [conformance.rising(of_program) for of_program in found]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--idd", required=True)
    parser.add_argument("--idctl", required=True)
    parser.add_argument("--ids", type=int, default=1_000_000)
    parser.add_argument("--driver", action="append", required=True)
    programs = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="idd-clients-") as folder:
        host = conformance.Host(programs, folder)
        is_well = False
        try:
            host.start()
            host.idctl("tag", "create", "orders", "--step", "10000")
            begin = time.monotonic()
            found = claim(host, programs, -(-programs.ids // len(DISTURBANCES)))
            seconds = time.monotonic() - begin
            conformance.distinct([number for ids in found for number in ids])
            host.stop()
            host.start()  # what a killed idd held is accounted for now
            report = json.loads(host.idctl("--json", "audit"))
            expect(report["ok"], f"the audit does not add up: {report}")
            tag = report["tags"][0]
            total = sum(len(ids) for ids in found)
            expect(tag["claimed"] >= total - tag["abandoned"], f"the audit knows fewer ids: {tag}")
            print(f"{len(found)} programs, {total:,} ids in {seconds:.1f} s, {len(DISTURBANCES)} disturbances; audit: {tag}")
            is_well = True
        except conformance.Failure as failure:
            print(f"FAILED: {failure}")
        host.close(is_well)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
