# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of the bench build and returns what they measured, as plain dictionaries.

Every figure is measured several times. If a claim is compared with a raw operation, the same
program measures both in turn in the same run. report.py computes medians and ratios.
"""

import contextlib
import json
import os
import pathlib
import platform
import pty
import re
import resource
import select
import signal
import socket
import sqlite3
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = ROOT / "build" / "bench"
PROGRAMS = BUILD / "tests" / "bench"
CLAIM_LOOP = BUILD / "bin" / "idd_claim_loop"
IDD = BUILD / "bin" / "idd"
IDCTL = BUILD / "bin" / "idctl"

KERNEL_CLAIMS = 10_000_000
KERNEL_STEP = 1_000_000
FOOTPRINT_TAGS = (1, 100, 10_000)
LOOK_TAGS = 2_000
TOP_SECONDS = 20
FLOOD_CONNECTIONS = 100_000
FLOOD_UID, FLOOD_KEPT = 12345, 8_000


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
    """ns a call, by benchmark; one entry for each run of each code layout."""
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
    """A separate idd in its own directory."""

    def __init__(self, directory, arguments, log_level):
        self.directory = directory
        self.socket = f"{directory}/idd.sock"
        self.process = subprocess.Popen(
            [IDD, "--database", f"sqlite:{directory}/idd.db", "--socket", self.socket,
             "--state-dir", f"{directory}/state", "--host-id", "bench", "--log-level", log_level, *arguments],
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
def daemon(*arguments, log_level="warning"):
    with tempfile.TemporaryDirectory(prefix="idd-bench.") as directory:
        running = Daemon(directory, arguments, log_level)
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
    """Runs a program that prints JSON, with its peers on another processor and on its own."""
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
    """System calls of KERNEL_CLAIMS claims beyond those of a program that claims one id. The fewest
    of three runs, because an occasional late lease adds the calls of the claim that waited for it.
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
    """The processor seconds of all threads, and the number of times that they slept."""
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
    """The resources of an idle idd, by number of tags. One id of each tag was claimed, so it has a
    ring. A ring takes two descriptors; if the hard limit is low, the last tags are only created.
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


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def processor_seconds(pid):
    """The processor seconds of idd, and of the reaped children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage(pid)[0] + children.ru_utime + children.ru_stime


class LongestClaim(threading.Thread):
    """Claims by `idctl claim`, one after the other, until the end of the `with` statement."""

    def __init__(self, idd, tag):
        super().__init__()
        self.idd, self.tag = idd, tag
        self.ends, self.ms = False, 0

    def run(self):
        while not self.ends:
            began = time.monotonic()
            self.idd.idctl("claim", self.tag)
            self.ms = max(self.ms, (time.monotonic() - began) * 1000)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.ends = True
        self.join()


def top_percent(idd):
    """% of a processor for idd and `idctl top` on a 24-line terminal, once it shows all tags."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(IDCTL, [str(IDCTL), "--socket", idd.socket, "top"], {**os.environ, "TERM": "xterm-256color"})

    def watch(seconds):
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if select.select([terminal], [], [], left)[0]:
                os.read(terminal, 65536)

    watch(8)
    before = usage(pid)[0] + usage(idd.process.pid)[0]
    watch(TOP_SECONDS)
    used = usage(pid)[0] + usage(idd.process.pid)[0] - before
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    return used / TOP_SECONDS * 100


def series(page, name):
    return float(re.search(rf"^{re.escape(name)} (\S+)$", page, re.M)[1])


def looks(rounds):
    """The cost of looking at LOOK_TAGS tags with a ring each: idctl status and top in processor
    time, a scrape in elapsed time, with the claims that a new client makes meanwhile.
    """
    port = free_port()
    with daemon("--metrics-listen", f"127.0.0.1:{port}") as idd:
        names = [f"tag-{number}" for number in range(LOOK_TAGS)]
        with sqlite3.connect(f"{idd.directory}/idd.db", timeout=10) as database:
            database.executemany("INSERT INTO leaf_alloc(biz_tag, max_id, step, description) "
                                 "VALUES (?, 1, 1000, '')", [(name,) for name in names])
        database.close()
        for name in names:
            idd.idctl("claim", name)
        time.sleep(3)
        result = {"status_ms": [], "status_json_ms": [], "scrape_ms": []}
        for _ in range(rounds):
            for key, words in (("status_ms", ("status",)), ("status_json_ms", ("--json", "status"))):
                before = processor_seconds(idd.process.pid)
                idd.idctl(*words)
                result[key].append((processor_seconds(idd.process.pid) - before) * 1000)
        result["top_percent"] = top_percent(idd)
        with LongestClaim(idd, names[0]) as claims_beside:
            for _ in range(rounds):
                time.sleep(1.1)  # scrapers within one second share a page
                began = time.monotonic()
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                    answer.read()
                result["scrape_ms"].append((time.monotonic() - began) * 1000)
        result["claim_ms"] = claims_beside.ms
        page = idd.idctl("metrics")
        result["short_turns_percent"] = (series(page, 'idd_metrics_turn_seconds_bucket{le="0.003"}') /
                                         series(page, "idd_metrics_turn_seconds_count") * 100)
        return result


def flood(path):
    """Connects FLOOD_CONNECTIONS times, as a user, and keeps as many as it can."""
    os.setgroups([])
    os.setresgid(FLOOD_UID, FLOOD_UID, FLOOD_UID)
    os.setresuid(FLOOD_UID, FLOOD_UID, FLOOD_UID)
    kept = [None] * FLOOD_KEPT
    made = 0
    while made < FLOOD_CONNECTIONS:
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        peer.setblocking(False)
        try:
            peer.connect(path)
        except BlockingIOError:  # the backlog is full
            peer.close()
            time.sleep(0.001)
            continue
        if kept[made % FLOOD_KEPT] is not None:
            kept[made % FLOOD_KEPT].close()
        kept[made % FLOOD_KEPT] = peer
        made += 1


def flooded():
    """Claims by new clients while a user connects as fast as it can. Needs root."""
    if os.geteuid() != 0:
        return None
    with tempfile.NamedTemporaryFile("w", prefix="idd-bench.", suffix=".toml") as config:
        config.write(f"[[access]]\ntags = ['*']\nusers = [{FLOOD_UID}]\naccess = 'shm'\n")
        config.flush()
        with daemon("--config", config.name, log_level="error") as idd:
            os.chmod(idd.directory, 0o755)
            idd.idctl("tag", "create", "bench", "--step", "100000")
            idd.idctl("claim", "bench")
            child = os.fork()
            if child == 0:
                try:
                    flood(idd.socket)
                    os._exit(0)
                finally:
                    os._exit(1)
            with LongestClaim(idd, "bench") as claims_beside:
                _, status = os.waitpid(child, 0)
            if status != 0:
                raise RuntimeError("the flood ended early")
            return {"claim_ms": claims_beside.ms}


def attacked(rounds):
    """p99 of a user's claims over the socket: quiet, under attacks, under attacks on another idd. Needs root."""
    if os.geteuid() != 0:
        return None
    report = json.loads(output(PROGRAMS / "attack_benchmark", rounds))
    return {name: [{f"{when}_us": run[when]["p99"] / 1000 for when in run} for run in runs]
            for name, runs in report.items()}


def everything(rounds, idle_seconds, tell):
    """Measures everything. Calls `tell` with the name of each part before it starts."""
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
    results["host_lease"] = [json.loads(output(PROGRAMS / "host_lease_benchmark"))
                             for _ in range(max(rounds, 3))]
    tell("system calls")
    results["kernel_entries"] = kernel_entries()
    tell("looks at many tags")
    results["looks"] = looks(max(rounds, 5))
    tell("a flood of connections")
    results["flood"] = flooded()
    tell("users who attack")
    results["attacked"] = attacked(max(rounds, 5))
    tell("footprint")
    results["footprint"] = footprint(idle_seconds)
    return results
