# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the bench build and returns what they measured, as plain dictionaries.

Every figure is taken several times; where a claim is compared with a raw operation both are measured in
turn by the same program in the same run. Medians and ratios are report.py's.
"""

import contextlib
import json
import os
import pathlib
import platform
import re
import resource
import signal
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "bench"
PROGRAMS = BUILD / "tests" / "bench"
CLAIM_LOOP = BUILD / "bin" / "idd_claim_loop"
IDD = BUILD / "bin" / "idd"
IDCTL = BUILD / "bin" / "idctl"

KERNEL_CLAIMS = 10_000_000
KERNEL_STEP = 1_000_000
FOOTPRINT_TAGS = (1, 100, 10_000)


def build():
    for command in (["cmake", "--preset", "bench"], ["cmake", "--build", "--preset", "bench"]):
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def output(*command):
    done = subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True)
    return done.stdout


def machine():
    cpu = "unknown processor"
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        for line in lines:
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    compiler = output("c++", "--version").splitlines()[0]
    return {"processor": cpu, "processors": os.cpu_count(), "kernel": ".".join(platform.release().split(".")[:2]),
            "architecture": platform.machine(), "compiler": compiler}


def claims(rounds):
    """ns of one call, by benchmark; one entry for each run of each layout of the code."""
    programs = sorted(PROGRAMS.glob("claim_benchmark_*"))
    runs = []
    for _ in range(rounds):
        for program in programs:
            report = json.loads(output(
                program, "--benchmark_format=json", "--benchmark_enable_random_interleaving=true",
                "--benchmark_repetitions=5", "--benchmark_min_time=0.05"))
            times = {}
            for row in report["benchmarks"]:
                if row["run_type"] == "iteration":
                    times.setdefault(row["run_name"].replace("/real_time", ""),
                                     []).append(row["real_time"])
            runs.append({name: statistics.median(values) for name, values in times.items()})
    return runs


class Daemon:
    """An idd of its own, in a directory of its own."""

    def __init__(self, directory):
        self.socket = f"{directory}/idd.sock"
        self.process = subprocess.Popen(
            [IDD, "--database", f"sqlite:{directory}/idd.db", "--socket", self.socket,
             "--state-dir", f"{directory}/state", "--host-id", "bench", "--log-level", "warning"],
            stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while subprocess.run([IDCTL, "--socket", self.socket, "status"], check=False,
                             capture_output=True).returncode != 0:
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("idd did not start")
            time.sleep(0.05)

    def idctl(self, *arguments):
        return output(IDCTL, "--socket", self.socket, *arguments)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


@contextlib.contextmanager
def daemon():
    with tempfile.TemporaryDirectory(prefix="idd-bench.") as directory:
        running = Daemon(directory)
        try:
            yield running
        finally:
            running.stop()


def processes(counts, rounds, seconds):
    """Runs of `idctl bench --json`, by number of processes."""
    with daemon() as idd:
        idd.idctl("tag", "create", "bench", "--step", "1000000000000")
        runs = {str(count): [] for count in counts}
        for _ in range(rounds):
            for count, reports in runs.items():
                reports.append(json.loads(idd.idctl("--json", "bench", "bench", "--processes", str(count),
                                                    "--seconds", str(seconds))))
        return runs


def runs_of(program, rounds):
    """A program that prints JSON, run with its peers on another processor and on its own."""
    return {"other processor": [json.loads(output(PROGRAMS / program)) for _ in range(rounds)],
            "same processor": [json.loads(output(PROGRAMS / program, "--same-processor"))
                               for _ in range(rounds)]}


def system_calls(socket, count):
    """Calls by name of a program that claims `count` ids, as strace counts them."""
    with tempfile.NamedTemporaryFile(prefix="idd-strace.") as report:
        output("strace", "-c", "-f", "-o", report.name, CLAIM_LOOP, socket, "bench",
               count)
        calls = {}
        for line in report.read().decode().splitlines():
            row = re.match(r"\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", line)
            if row and row[2] != "total":
                calls[row[2]] = int(row[1])
        if not calls:
            raise RuntimeError("strace counted nothing")
        return calls


def kernel_entries():
    """System calls of KERNEL_CLAIMS claims beyond those of a program that claims one id: the fewest of
    three runs, as a lease that is late for once adds the claim that waited for it.
    """
    runs = []
    with daemon() as idd:
        idd.idctl("tag", "create", "bench", "--step", str(KERNEL_STEP), "--refill", "leaf",
                  "--max-step", str(KERNEL_STEP))
        none = system_calls(idd.socket, 0)
        for _ in range(3):
            many = system_calls(idd.socket, KERNEL_CLAIMS)
            runs.append({name: count - none.get(name, 0) for name, count in many.items()
                         if count > none.get(name, 0)})
    return min(runs, key=lambda run: sum(run.values()))


def usage(pid):
    """Seconds on a processor, of all threads, and how often each was put to sleep."""
    seconds, sleeps = 0.0, {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        seconds += int((task / "schedstat").read_text(encoding="utf-8").split()[0]) / 1e9
        status = (task / "status").read_text(encoding="utf-8")
        sleeps[task.name] = int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", status, re.M)[1])
    return seconds, sleeps


def resident_mib(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1]) / 1024


def footprint(idle_seconds):
    """What an idle idd takes: rows by number of tags, of each of which one id was claimed, so that it has
    a ring. A ring takes two descriptors: where the hard limit is low, the last tags are only created.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    most_rings = (most - 100) // 2
    rows = []
    with daemon() as idd:
        tags = 0
        for wanted in FOOTPRINT_TAGS:
            for number in range(tags, wanted):
                idd.idctl("tag", "create", f"tag-{number}", "--step", "1000")
                if number < most_rings:
                    idd.idctl("claim", f"tag-{number}")
            tags = wanted
            time.sleep(3)
            cpu_before, sleeps_before = usage(idd.process.pid)
            time.sleep(idle_seconds)
            cpu, sleeps = usage(idd.process.pid)
            rows.append({"tags": tags, "rings": min(tags, most_rings),
                         "resident_mib": resident_mib(idd.process.pid),
                         "cpu_percent": (cpu - cpu_before) / idle_seconds * 100,
                         "wake_ups_per_s": max(count - sleeps_before.get(task, 0)
                                               for task, count in sleeps.items()) / idle_seconds})
    return rows


def everything(rounds, idle_seconds, tell):
    """All of it. `tell` is called with what comes next."""
    tell("building")
    build()
    results = {"machine": machine(), "rounds": rounds}
    tell("claims, 1 and 2 threads, batches, blocks")
    results["claims"] = claims(rounds)
    tell("claims, 2, 4 and 8 processes")
    results["processes"] = processes((2, 4, 8), max(rounds, 7), 3)
    tell("latency while segments change")
    results["latency"] = runs_of("latency_benchmark", max(rounds, 7))
    tell("socket")
    results["socket"] = runs_of("socket_benchmark", max(rounds, 7))
    tell("refill")
    results["refill"] = [json.loads(output(PROGRAMS / "refill_benchmark"))
                         for _ in range(max(rounds, 7))]
    tell("leases on MariaDB")
    results["lease"] = {way: [json.loads(output(PROGRAMS / "lease_benchmark", way))
                              for _ in range(max(rounds, 7))] for way in ("tcp", "socket")}
    tell("system calls")
    results["kernel_entries"] = kernel_entries()
    tell("footprint")
    results["footprint"] = footprint(idle_seconds)
    return results
