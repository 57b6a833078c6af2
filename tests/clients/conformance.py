#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What every client library must do, checked on its driver (README.md).

conformance.py --idd IDD --idctl IDCTL [--case NAME ...] [--fails] -- DRIVER [ARGUMENT ...]

Each case starts a real idd of its own. Prints a line per case; the exit status is 1 if a case
failed. --fails: the driver is broken on purpose, so that at least one case must fail.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

# What a slow machine may take for something that takes no time.
PATIENCE = 60
# Ids of each thread that claims while idd is disturbed.
LOOP = 40_000
DISTURBANCES = 5


class Failure(Exception):
    pass


def expect(holds, message):
    if not holds:
        raise Failure(message)


class Answer:
    def __init__(self, line):
        words = line.split(" ")
        self.line = line
        self.ok = words[0] == "ok"
        self.results = words[1:] if self.ok else []
        self.status = "OK" if self.ok else words[1] if len(words) > 1 else "?"
        self.message = "" if self.ok else " ".join(words[2:])

    @property
    def ids(self):
        expect(self.ok, f"answered: {self.line}")
        return [int(word) for word in self.results]

    @property
    def id(self):
        expect(len(self.ids) == 1, f"answered: {self.line}")
        return self.ids[0]


class Driver:
    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def send(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def receive(self):
        timer = threading.Timer(2 * PATIENCE, self.process.kill)
        timer.start()
        line = self.process.stdout.readline()
        timer.cancel()
        expect(line.endswith("\n"), "the driver ended, or did not answer in time")
        return Answer(line.rstrip("\n"))

    def ask(self, command):
        self.send(command)
        return self.receive()

    def do(self, command):
        answer = self.ask(command)
        expect(answer.ok, f"'{command}' answered: {answer.line}")
        return answer

    def end(self):
        self.process.stdin.close()
        try:
            expect(self.process.wait(PATIENCE) == 0, f"the driver ended with {self.process.returncode}")
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Host:
    """A folder with an idd, and the driver that talks to it."""

    def __init__(self, programs, folder):
        self.programs = programs
        self.folder = pathlib.Path(folder)
        self.socket = str(self.folder / "idd.sock")
        self.uid = None  # idd runs as this user
        self.idd = None
        self.drivers = []

    def start(self):
        command = [self.programs.idd, "--database", f"sqlite:{self.folder}/idd.db", "--socket", self.socket,
                   "--state-dir", str(self.folder), "--host-id", "conformance"]  # fmt: skip
        with open(self.folder / "idd.log", "a", encoding="utf-8") as log:
            self.idd = subprocess.Popen(
                command, stdout=log, stderr=log, user=self.uid, cwd="/", env={"PATH": os.environ["PATH"]}
            )
        deadline = time.monotonic() + PATIENCE
        while not self.serves():
            expect(self.idd.poll() is None, f"idd ended: {self.log()}")
            expect(time.monotonic() < deadline, "idd did not start in time")
            time.sleep(0.01)

    def serves(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            return probe.connect_ex(self.socket) == 0

    def log(self):
        return (self.folder / "idd.log").read_text(encoding="utf-8")

    def stop(self, how=signal.SIGTERM):
        if self.idd is None:
            return
        self.idd.send_signal(how)
        self.idd.wait(PATIENCE)
        self.idd = None

    def kill(self):
        self.stop(signal.SIGKILL)

    def idctl(self, *arguments):
        done = subprocess.run(
            [self.programs.idctl, "--socket", self.socket, *arguments],
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        expect(done.returncode == 0, f"idctl {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    def driver(self):
        driver = Driver(self.programs.driver)
        self.drivers.append(driver)
        return driver

    # A driver with an open client and a tag with a handle of the same name.
    def client(self, tag="orders", timeout_ms=20_000):
        driver = self.driver()
        driver.do(f"open {self.socket} {timeout_ms}")
        driver.do(f"tag {tag} {tag}")
        return driver

    # Starts idd and creates the tag; a driver as of client().
    def start_with(self, tag, *settings, **options):
        self.start()
        self.idctl("tag", "create", tag, *settings)
        return self.client(tag, **options)

    def close(self, is_well):
        try:
            for driver in self.drivers:
                if is_well:
                    driver.end()
        finally:
            for driver in self.drivers:
                driver.kill()
            self.kill()


CASES = []


def case(function):
    CASES.append(function)
    return function


def distinct(ids):
    expect(len(set(ids)) == len(ids), "an id came twice")
    return ids


def rising(ids):
    expect(all(a < b for a, b in zip(ids, ids[1:])), f"ids do not rise: {ids[:20]}")
    return ids


def timed(call):
    begin = time.monotonic()
    result = call()
    return result, time.monotonic() - begin


# The first claim may get its id before the ring has any.
def await_ring(driver, handle):
    deadline = time.monotonic() + PATIENCE
    while driver.do(f"info {handle}").results[2] != "ok":
        expect(time.monotonic() < deadline, f"the ring of {handle} stays empty")
        time.sleep(0.001)


def empty_ring(driver, handle):
    for _ in range(100_000):
        answer = driver.ask(f"claim {handle} 0")
        if not answer.ok:
            expect(answer.status == "TIMEOUT", f"a claim without a wait answered: {answer.line}")
            return
    raise Failure("the ring does not become dry")


def read_loop(path, threads, count):
    ids = [[] for _ in range(threads)]
    for line in pathlib.Path(path).read_text(encoding="ascii").splitlines():
        thread, number = line.split(" ")
        ids[int(thread)].append(int(number))
    for of_thread in ids:
        expect(len(of_thread) == count, f"a thread has {len(of_thread)} ids, not {count}")
    return ids


@case
def claims_one_by_one(host):
    driver = host.start_with("orders", "--step", "1000")
    expect(driver.do("claim orders").id == 1, "the first id is not 1")
    expect(rising([driver.do("claim orders").id for _ in range(2500)])[-1] == 2501, "ids are left out")
    expect(driver.do("version").results[0].count(".") == 2, "the version is not MAJOR.MINOR.PATCH")


@case
def missing_daemon_ends_at_the_deadline(host):
    driver = host.driver()
    answer, seconds = timed(lambda: driver.ask(f"open {host.socket} 300"))
    expect(answer.status == "UNAVAILABLE", f"answered: {answer.line}")
    expect(answer.message != "", "the error has no message")
    expect(0.25 < seconds < PATIENCE, f"took {seconds:.3f} s")


@case
def open_waits_for_a_daemon(host):
    driver = host.driver()
    driver.send(f"open {host.socket} {PATIENCE * 1000}")
    time.sleep(0.3)
    host.start()
    answer = driver.receive()
    expect(answer.ok, f"answered: {answer.line}")


@case
def untrusted_daemon_is_refused(host):
    if os.geteuid() != 0:
        return
    host.uid = 65534  # neither root nor the user idd
    os.chown(host.folder, host.uid, -1)
    host.start()
    answer = host.driver().ask(f"open {host.socket} 20000")
    expect(answer.status == "DENIED", f"answered: {answer.line}")


@case
def unknown_tag_and_bad_names(host):
    host.start()
    driver = host.driver()
    driver.do(f"open {host.socket} 20000")
    answer = driver.ask("tag t nobody")
    expect(answer.status == "NO_SUCH_TAG", f"answered: {answer.line}")
    expect("nobody" in answer.message, f"the message does not name the tag: {answer.message}")
    expect(driver.ask("tag t " + "x" * 129).status == "INVALID", "a name of 129 bytes is not refused")
    expect(driver.ask("tag t a\u200bb").status == "INVALID", "an invisible character is not refused")
    expect(driver.ask("claim t").status == "INVALID", "a claim without a tag is not refused")


@case
def dry_ring_ends_at_the_deadline(host):
    driver = host.start_with("orders", "--step", "200")
    driver.do("claim orders")
    host.kill()
    empty_ring(driver, "orders")
    answer, seconds = timed(lambda: driver.ask("claim orders 300"))
    expect(answer.status in ("TIMEOUT", "UNAVAILABLE"), f"answered: {answer.line}")
    expect(0.25 < seconds < PATIENCE, f"a wait of 300 ms took {seconds:.3f} s")
    _, seconds = timed(lambda: driver.ask("claim orders 0"))
    expect(seconds < PATIENCE / 4, f"a claim without a wait took {seconds:.3f} s")
    host.start()
    expect(driver.do("claim orders").id > 200, "an id came twice")


@case
def claim_without_a_wait_gets_ids_in_the_end(host):
    driver = host.start_with("orders", "--step", "200")
    deadline = time.monotonic() + PATIENCE
    while not driver.ask("claim orders 0").ok:
        expect(time.monotonic() < deadline, "idd leases no ids for claims that do not wait")


@case
def batches(host):
    driver = host.start_with("orders", "--step", "1000")
    ids = driver.do("many orders 3500").ids
    expect(len(ids) == 3500, f"{len(ids)} ids of 3500")
    rising(ids)
    distinct(ids + driver.do("many orders 500").ids + [driver.do("claim orders").id])
    expect(driver.do("many orders 0").ids == [], "a batch of nothing is something")


@case
def ranges(host):
    driver = host.start_with("orders", "--step", "1000")
    ids = []
    for count in (1, 10, 5000, 7):
        first, claimed = driver.do(f"range orders {count}").ids
        expect(1 <= claimed <= count, f"a range of {count} has {claimed} ids")
        ids += range(first, first + claimed)
    distinct(ids)
    expect(driver.ask("range orders 0").status == "INVALID", "a range of nothing is not refused")


@case
def blocks(host):
    driver = host.start_with("orders", "--step", "1000")
    driver.do("tag blocks orders 16")
    ids = []
    for _ in range(100):
        ids += [driver.do("claim blocks").id, driver.do("claim orders").id]
    distinct(ids)
    expect(driver.ask("tag huge orders 65537").status == "INVALID", "a block of 65537 is not refused")


@case
def forks(host):
    driver = host.start_with("orders", "--step", "1000")
    driver.do("tag blocks orders 64")
    ids = [driver.do("claim blocks").id, driver.do("claim orders").id]
    for handle in ("orders", "blocks", "orders"):
        of_both = driver.do(f"fork {handle} 200").ids
        expect(len(of_both) == 400, f"{len(of_both)} ids of 400")
        ids += of_both
    distinct(ids + [driver.do("claim blocks").id, driver.do("claim orders").id])


@case
def threads(host):
    driver = host.start_with("orders", "--step", "1000")
    path = host.folder / "ids"
    driver.do(f"loop orders 20000 4 {path}")
    ids = read_loop(path, 4, 20_000)
    for of_thread in ids:
        rising(of_thread)
    expect(sorted(sum(ids, [])) == list(range(1, 80_001)), "ids are left out or came twice")


# Three threads claim while `disturb` is called, DISTURBANCES times at least; their ids must be as
# promised. How long a round of claims takes depends on the language and the machine.
def claim_while(host, disturb):
    driver = host.start_with("orders", "--step", "300", "--max-prefetch", "3000")
    path = host.folder / "ids"
    found = [[], [], []]
    times = 0
    while times < DISTURBANCES:
        driver.send(f"loop orders {LOOP} 3 {path}")
        answers = []
        receiver = threading.Thread(target=lambda: answers.append(driver.receive()))
        receiver.start()
        while receiver.is_alive():
            disturb()
            times += 1
            receiver.join(0.1)
        expect(answers and answers[0].ok, f"the loop answered: {answers[0].line if answers else 'nothing'}")
        for of_thread, ids in zip(found, read_loop(path, 3, LOOP)):
            of_thread += ids
    for of_thread in found:
        rising(of_thread)
    distinct(sum(found, []))


@case
def restarts(host):
    def disturb():
        host.stop()
        host.start()

    claim_while(host, disturb)


@case
def kills(host):
    def disturb():
        host.kill()
        time.sleep(0.05)
        host.start()

    claim_while(host, disturb)


@case
def killed_daemon_leaves_the_ring(host):
    driver = host.start_with("orders", "--step", "1000")
    driver.do("claim orders")
    await_ring(driver, "orders")
    host.kill()
    rising([driver.do("claim orders").id for _ in range(200)])


@case
def drained_tag_is_refused_at_once(host):
    driver = host.start_with("orders", "--step", "1000", timeout_ms=PATIENCE * 1000)
    last = driver.do("claim orders").id
    host.idctl("drain", "orders")
    answer, seconds = timed(lambda: driver.ask("claim orders"))
    expect(answer.status == "UNAVAILABLE", f"answered: {answer.line}")
    expect("drain" in answer.message, f"the message does not say why: {answer.message}")
    expect(seconds < PATIENCE / 2, f"took {seconds:.3f} s")
    expect(driver.do("info orders").results[2] == "drained", "the state is not drained")
    host.idctl("resume", "orders")
    expect(driver.do("claim orders").id > last, "an id came twice")


@case
def other_version_is_incompatible(host):
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(host.socket)
    listener.listen()

    def answer_all():
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                hello = peer.recv(16384)
                # ERROR, status INCOMPATIBLE, in the header that the request has.
                reason = b"idd speaks another version"
                payload = struct.pack("<II", 7, 0) + reason
                header = hello[:4] + struct.pack("<HH", *struct.unpack("<HH", hello[4:8]))
                header = header[:6] + struct.pack("<H", 0x8006)
                header += struct.pack("<II", 24 + len(payload), 0) + hello[16:24]
                peer.send(header + payload)
                peer.close()

    server = threading.Thread(target=answer_all, daemon=True)
    server.start()
    answer = host.driver().ask(f"open {host.socket} 2000")
    listener.close()
    expect(answer.status == "INCOMPATIBLE", f"answered: {answer.line}")


@case
def snowflake_tags(host):
    driver = host.start_with("flakes", "--mode", "snowflake")
    ids = [driver.do("claim flakes").id for _ in range(100)] + driver.do("many flakes 5000").ids
    rising(ids)
    first, count = driver.do("range flakes 100").ids
    await_ring(driver, "flakes")
    expect(first > ids[-1] and 1 <= count <= 100, "a range does not rise")
    expect(driver.do("info flakes").results[:3] == ["snowflake", "host", "ok"], "the mode is wrong")


@case
def ticket_tags(host):
    driver = host.start_with("tickets", "--mode", "ticket")
    rising([driver.do("claim tickets").id for _ in range(20)] + driver.do("many tickets 10").ids)
    expect(driver.ask("claim tickets 0").status == "TIMEOUT", "a ticket came without a request")
    expect(driver.do("info tickets").results[0] == "ticket", "the mode is wrong")


@case
def tags_over_the_socket(host):
    driver = host.start_with("orders", "--step", "1000", "--access", "socket")
    rising([driver.do("claim orders").id for _ in range(20)] + driver.do("many orders 1500").ids)
    host.stop()
    host.start()
    expect(driver.do("claim orders").id > 1500, "an id came twice")


@case
def tags_of_order_cpu(host):
    driver = host.start_with("orders", "--step", "2000", "--order", "cpu")
    path = host.folder / "ids"
    driver.do(f"loop orders 20000 3 {path}")
    ids = sum(read_loop(path, 3, 20_000), [])
    distinct(ids + driver.do("many orders 1000").ids + [driver.do("claim orders").id])
    expect(driver.do("info orders").results[1] == "cpu", "the order is wrong")


@case
def info_of_a_tag(host):
    driver = host.start_with("orders", "--step", "1000")
    driver.do("claim orders")
    await_ring(driver, "orders")
    mode, order, state, step, available = driver.do("info orders").results
    expect((mode, order, state, step) == ("segment", "host", "ok", "1000"), "info is wrong")
    expect(int(available) % 1000 == 999, f"{available} ids are available")


@case
def last_id(host):
    driver = host.start_with("orders", "--step", "10", "--max-id", "25")
    distinct([driver.do("claim orders").id for _ in range(25)])
    answer = driver.ask("claim orders")
    expect(answer.status == "OUT_OF_IDS", f"answered: {answer.line}")


@case
def what_is_closed_is_refused(host):
    driver = host.start_with("orders", "--step", "1000")
    driver.do("tag other orders")
    driver.do("claim orders")
    driver.do("close TAG other")
    expect(driver.ask("claim other").status == "INVALID", "a closed tag is not refused")
    driver.do("claim orders")
    driver.do("close")
    expect(driver.ask("claim orders").status == "INVALID", "a closed client is not refused")
    driver.do(f"open {host.socket} 20000")
    driver.do("tag orders orders")
    expect(driver.do("claim orders").id == 3, "ids are left out")


def run(programs, function):
    with tempfile.TemporaryDirectory(prefix="idd-clients-") as folder:
        host = Host(programs, folder)
        is_well = False
        try:
            function(host)
            is_well = True
        except Failure as failure:
            print(f"FAILED  {function.__name__}: {failure}", flush=True)
        except Exception:  # noqa: BLE001: a broken driver may do anything
            print(f"FAILED  {function.__name__}: {traceback.format_exc()}", flush=True)
        try:
            host.close(is_well)
        except Failure as failure:
            is_well = False
            print(f"FAILED  {function.__name__}: {failure}", flush=True)
        if is_well:
            print(f"passed  {function.__name__}", flush=True)
        return is_well


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--idd", required=True)
    parser.add_argument("--idctl", required=True)
    parser.add_argument("--case", action="append", help="only this case; may be repeated")
    parser.add_argument("--fails", action="store_true")
    parser.add_argument("driver", nargs="+")
    programs = parser.parse_args()
    chosen = [one for one in CASES if not programs.case or one.__name__ in programs.case]
    if not chosen:
        parser.error("there is no such case")
    failed = [one.__name__ for one in chosen if not run(programs, one)]
    print(f"{len(chosen) - len(failed)} passed, {len(failed)} failed", flush=True)
    if programs.fails:
        print("a broken driver failed, as it must" if failed else "a broken driver passed")
        return 0 if failed else 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
