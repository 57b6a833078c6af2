# SPDX-License-Identifier: Apache-2.0
"""What is Python's own: buffers, the GIL, forks, threads, references. With a real idd.

IDD_TEST_IDD, IDD_TEST_IDCTL: the programs. PYTHONPATH: the built client.
"""

import array
import concurrent.futures
import gc
import logging
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import unittest

import idclient

try:
    import numpy
except ImportError:
    numpy = None

PATIENCE = 60


class Idd:
    """An idd in a folder of its own, with the tag orders."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="idd-python-")
        self.socket = os.path.join(self.folder.name, "idd.sock")
        self.process = None

    def start(self):
        path = pathlib.Path(self.folder.name)
        with open(path / "log", "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [os.environ["IDD_TEST_IDD"], "--database", f"sqlite:{path}/idd.db", "--socket", self.socket,
                 "--state-dir", str(path), "--host-id", "python"],
                stdout=log, stderr=log,
            )  # fmt: skip
        with idclient.Client(self.socket, timeout=PATIENCE):
            pass

    def idctl(self, *arguments):
        subprocess.run(
            [os.environ["IDD_TEST_IDCTL"], "--socket", self.socket, *arguments],
            check=True, capture_output=True, timeout=PATIENCE,
        )  # fmt: skip

    def kill(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def close(self):
        self.kill()
        self.folder.cleanup()


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.idd = Idd()
        self.addCleanup(self.idd.close)
        self.idd.start()
        self.idd.idctl("tag", "create", "orders", "--step", "1000")

    def client(self, **options):
        client = idclient.Client(self.idd.socket, **{"timeout": PATIENCE, **options})
        self.addCleanup(client.close)
        return client

    def leave_dry(self, tag):
        self.idd.kill()
        while tag.try_claim() is not None:
            pass

    def assertDistinct(self, ids):
        self.assertEqual(len(ids), len(set(ids)))


class Claims(ClientTest):
    def test_iterating_claims_without_end(self):
        orders = self.client().tag("orders")
        ids = [number for number, _ in zip(orders, range(5))]
        self.assertEqual(ids, [1, 2, 3, 4, 5])
        self.assertIs(iter(orders), orders)

    def test_arguments_of_claim(self):
        orders = self.client().tag("orders")
        orders.claim()
        self.assertEqual(orders.claim(None), 2)
        self.assertEqual(orders.claim(0), 3)
        self.assertEqual(orders.claim(timeout=0.5), 4)
        for bad in (-1, 3601, float("nan")):
            self.assertRaises(ValueError, orders.claim, bad)
        self.assertRaises(TypeError, orders.claim, 1, 2)
        self.assertRaises(TypeError, orders.claim, wait=1)
        self.assertRaises(TypeError, orders.claim, "1")
        self.assertEqual(orders.claim(), 5)

    def test_buffers_are_filled_in_place(self):
        orders = self.client().tag("orders")
        ids = orders.claim_many(1500)
        self.assertIsInstance(ids, array.array)
        self.assertEqual((ids.typecode, len(ids)), ("Q", 1500))
        self.assertEqual(ids.tolist(), sorted(set(ids)))
        own = array.array("Q", bytes(80))
        self.assertEqual(orders.claim_into(own), 10)
        self.assertEqual(orders.claim_into(memoryview(own)[5:]), 5)
        self.assertDistinct(ids.tolist() + own.tolist())
        self.assertEqual(len(orders.claim_many(0)), 0)

    def test_buffers_that_do_not_fit_are_refused_and_claim_nothing(self):
        orders = self.client().tag("orders")
        last = orders.claim()
        for bad in (array.array("i", [0]), array.array("d", [0]), array.array("q", [0]), bytearray(8)):
            self.assertRaises(TypeError, orders.claim_into, bad)
        self.assertRaises(BufferError, orders.claim_into, bytes(8))
        self.assertRaises(BufferError, orders.claim_into, memoryview(array.array("Q", [0] * 4))[::2])
        self.assertRaises(TypeError, orders.claim_into, [0])
        self.assertRaises(ValueError, orders.claim_many, -1)
        self.assertRaises((ValueError, OverflowError, MemoryError), orders.claim_many, 1 << 62)
        self.assertEqual(orders.claim(), last + 1)

    @unittest.skipIf(numpy is None, "NumPy is not installed")
    def test_numpy_arrays(self):
        orders = self.client().tag("orders")
        ids = numpy.zeros(1000, dtype=numpy.uint64)
        self.assertEqual(orders.claim_into(ids), 1000)
        self.assertTrue((numpy.diff(ids.astype(numpy.int64)) > 0).all())
        view = numpy.asarray(orders.claim_many(10))
        self.assertEqual(view.dtype, numpy.uint64)
        self.assertRaises(TypeError, orders.claim_into, numpy.zeros(4, dtype=numpy.int64))

    def test_partial_batch_says_how_many(self):
        orders = self.client(timeout=0.2).tag("orders")
        while orders.info().available == 0:  # the first claim may get its id before the ring has any
            orders.claim(PATIENCE)
        self.idd.kill()
        own = array.array("Q", bytes(8 * 10_000))
        with self.assertRaises(idclient.Error) as caught:
            orders.claim_into(own)
        claimed = caught.exception.claimed
        self.assertGreater(claimed, 0)
        self.assertDistinct(own[:claimed].tolist())
        self.assertEqual(set(own[claimed:]), {0})
        with self.assertRaises(idclient.Error) as caught:
            orders.claim_many(5)
        self.assertEqual(list(caught.exception.ids), [])

    def test_ranges(self):
        orders = self.client().tag("orders")
        ids = orders.claim_range(10)
        self.assertIsInstance(ids, range)
        self.assertEqual(list(ids), list(range(1, 11)))
        self.assertRaises(idclient.InvalidError, orders.claim_range, 0)
        self.assertRaises((OverflowError, ValueError), orders.claim_range, -1)

    def test_info(self):
        orders = self.client().tag("orders")
        orders.claim()
        while orders.info().state == "dry":  # the first claim may get its id before the ring has any
            time.sleep(0.001)
        info = orders.info()
        self.assertEqual((info.mode, info.order, info.state, info.step), ("segment", "host", "ok", 1000))
        self.assertEqual(info.available % 1000, 999)
        self.assertEqual(orders.name, "orders")
        self.assertEqual(repr(orders), "<idclient.Tag 'orders'>")


class Errors(ClientTest):
    def test_exceptions_are_those_that_python_programs_expect(self):
        client = self.client()
        with self.assertRaises(LookupError) as caught:
            client.tag("nobody")
        self.assertIsInstance(caught.exception, idclient.NoSuchTagError)
        self.assertEqual(caught.exception.status, "NO_SUCH_TAG")
        self.assertFalse(caught.exception.retryable)
        self.assertIn("nobody", str(caught.exception))
        self.assertRaises(ValueError, client.tag, "a\0b")
        self.assertRaises(ValueError, client.tag, "")
        for size in (65537, 1 << 32, 1 << 70, -1):
            self.assertRaises(idclient.InvalidError, client.tag, "orders", size)
        with self.assertRaises(idclient.Error) as caught:
            idclient.Client(b"/no/\xff/socket", timeout=0.05)
        self.assertIn("socket", str(caught.exception))
        orders = client.tag("orders")
        self.leave_dry(orders)
        with self.assertRaises(idclient.Error) as caught:
            orders.claim(0.05)
        self.assertTrue(caught.exception.retryable)
        self.assertRaises(TimeoutError, orders.claim, 0)
        self.assertRaises(ConnectionError, idclient.Client, self.idd.socket, timeout=0.05, open_once=True)

    def test_types_cannot_be_made_or_changed_wrongly(self):
        self.assertRaises(TypeError, idclient.Tag)
        self.assertRaises(TypeError, lambda: type("Mine", (idclient.Tag,), {}))
        self.assertRaises(TypeError, lambda: type("Mine", (idclient.Client,), {}))
        self.assertRaises(TypeError, idclient.Client, log=5)
        self.assertRaises(ValueError, idclient.Client, timeout=-1)

    def test_closed_objects_refuse(self):
        with self.client() as client:
            orders = client.tag("orders")
            other = client.tag("orders")
            other.close()
            other.close()
            self.assertRaises(idclient.InvalidError, other.claim)
            self.assertEqual(orders.claim(), 1)
        self.assertTrue(client.closed)
        for call in (orders.claim, orders.try_claim, orders.info, lambda: orders.claim_many(1),
                     lambda: orders.claim_range(1), lambda: next(orders), lambda: client.tag("orders")):  # fmt: skip
            self.assertRaises(idclient.InvalidError, call)
        orders.close()
        client.close()


class Waits(ClientTest):
    def test_other_threads_run_while_one_waits(self):
        orders = self.client().tag("orders")
        self.leave_dry(orders)
        waits = threading.Thread(target=lambda: self.assertRaises(idclient.Error, orders.claim, 1))
        waits.start()
        turns = 0
        while waits.is_alive():
            turns += 1
            time.sleep(0.001)
        waits.join()
        self.assertGreater(turns, 50)

    def test_signal_ends_a_wait(self):
        code = (
            "import idclient, sys\n"
            "tag = idclient.Client(sys.argv[1], timeout=300).tag('orders')\n"
            "tag.claim()\n"
            "print('open', flush=True)\n"
            "sys.stdin.readline()\n"
            "while tag.try_claim() is not None:\n"
            "    pass\n"
            "print('dry', flush=True)\n"
            "tag.claim()\n"
        )
        program = subprocess.Popen(
            [sys.executable, "-c", code, self.idd.socket],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        )  # fmt: skip
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), b"open\n")
        self.idd.process.send_signal(signal.SIGSTOP)
        program.stdin.write(b"\n")
        self.assertEqual(program.stdout.readline(), b"dry\n")
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
        _, error = program.communicate(timeout=PATIENCE)
        self.idd.process.send_signal(signal.SIGCONT)
        self.assertIn(b"KeyboardInterrupt", error)

    def test_close_while_other_threads_wait(self):
        for _ in range(20):
            client = self.client()
            orders = client.tag("orders")
            orders.claim()
            waiting = [client.tag("orders", block) for block in (0, 0, 8)]
            self.leave_dry(orders)
            errors = []

            def wait(tag, errors=errors):
                try:
                    while True:
                        tag.claim(1)
                except idclient.Error as error:
                    errors.append(error)

            threads = [threading.Thread(target=wait, args=(tag,)) for tag in waiting]
            for thread in threads:
                thread.start()
            time.sleep(0.02)
            waiting[0].close()
            client.close()
            for thread in threads:
                thread.join(PATIENCE)
            self.assertEqual(len(errors), 3)
            self.idd.start()

    def test_log_function_hears_of_the_connection(self):
        with self.assertLogs("idclient") as logs:
            orders = self.client(log=logging.getLogger("idclient").log).tag("orders")
            self.leave_dry(orders)
            self.idd.start()
            orders.claim()
        self.assertTrue(any("connected to idd" in line for line in logs.output), logs.output)
        self.assertTrue(any("broke" in line for line in logs.output), logs.output)

    def test_log_function_that_fails_is_reported_and_harms_nothing(self):
        heard = []
        before, sys.unraisablehook = sys.unraisablehook, heard.append
        try:
            orders = self.client(log=lambda level, message: 1 / 0).tag("orders")
        finally:
            sys.unraisablehook = before
        self.assertIsInstance(heard[0].exc_value, ZeroDivisionError)
        self.assertEqual(orders.claim(), 1)

    def test_interpreter_ends_while_a_thread_waits(self):
        # The thread connects again while the interpreter ends; its log function is not called then.
        code = (
            "import idclient, sys, threading, time\n"
            "class Slow:\n"
            "    def write(self, text): return len(text)\n"
            "    def flush(self):\n"
            "        print('ends', file=sys.__stderr__, flush=True)\n"
            "        time.sleep(1)\n"
            "tag = idclient.Client(sys.argv[1], timeout=300, log=lambda *line: None).tag('orders')\n"
            "sys.stdin.readline()\n"
            "while tag.try_claim() is not None: pass\n"
            "def wait():\n"
            "    while True: tag.claim()\n"
            "threading.Thread(target=wait, daemon=True).start()\n"
            "time.sleep(0.3)\n"
            "sys.stdout = Slow()\n"
        )
        for _ in range(3):
            program = subprocess.Popen(
                [sys.executable, "-c", code, self.idd.socket],
                stdin=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            )  # fmt: skip
            self.addCleanup(program.kill)
            time.sleep(0.3)
            self.idd.kill()
            program.stdin.write(b"\n")
            self.assertEqual(program.stderr.readline(), b"ends\n")
            self.idd.start()
            _, error = program.communicate(timeout=PATIENCE)
            self.assertEqual(program.returncode, 0, error)


def claim_in_process(socket_path, count):
    orders = idclient.Client(socket_path, timeout=PATIENCE).tag("orders")
    return [orders.claim() for _ in range(count)]


class Processes(ClientTest):
    """A fork before the open, after it, in the middle of claims, and again in the child."""

    def fork_each(self, children, work):
        """The ids that `children` processes get from work(); a child forks further if it likes."""
        ids = []
        pipes = []
        for number in range(children):
            reading, writing = os.pipe()
            if os.fork() == 0:
                status = 1
                try:
                    os.close(reading)
                    with os.fdopen(writing, "wb") as pipe:
                        pipe.write(array.array("Q", work(number)).tobytes())
                    status = 0
                finally:
                    os._exit(status)
            os.close(writing)
            pipes.append(reading)
        for reading in pipes:
            with os.fdopen(reading, "rb") as pipe:
                of_child = array.array("Q")
                of_child.frombytes(pipe.read())
                ids += of_child
        for _ in range(children):
            self.assertEqual(os.wait()[1], 0)
        return ids

    def test_fork_before_the_open(self):
        ids = self.fork_each(4, lambda _: claim_in_process(self.idd.socket, 500))
        self.assertEqual(sorted(ids), list(range(1, 2001)))

    def test_prefork_of_32_after_the_open(self):
        client = self.client()
        for block_size in (0, 16):
            orders = client.tag("orders", block_size)
            mine = [orders.claim() for _ in range(10)]
            ids = self.fork_each(32, lambda _, orders=orders: [orders.claim() for _ in range(200)])
            self.assertDistinct(mine + ids + [orders.claim() for _ in range(10)])
            self.assertEqual(len(ids), 32 * 200)

    def test_fork_in_the_middle_of_claims_by_other_threads(self):
        client = self.client()
        orders = client.tag("orders")
        blocks = client.tag("orders", 8)
        stop = threading.Event()
        found = []

        def claim():
            while not stop.is_set():
                found.append(orders.claim())
                found.append(blocks.claim())
                found.extend(orders.claim_many(3))

        threads = [threading.Thread(target=claim) for _ in range(3)]
        for thread in threads:
            thread.start()
        ids = []
        for _ in range(10):
            ids += self.fork_each(2, lambda _: [tag.claim() for _ in range(100) for tag in (orders, blocks)])
        stop.set()
        for thread in threads:
            thread.join(PATIENCE)
        self.assertDistinct(found + ids)

    def test_grandchildren(self):
        orders = self.client().tag("orders", 16)
        orders.claim()

        def child(_):
            mine = [orders.claim() for _ in range(50)]
            return mine + self.fork_each(2, lambda _: [orders.claim() for _ in range(50)])

        ids = self.fork_each(3, child)
        self.assertEqual(len(ids), 3 * 150)
        self.assertDistinct(ids)

    def test_child_closes_its_client_and_the_parents_lives(self):
        client = self.client()
        orders = client.tag("orders")
        orders.claim()
        waits = threading.Thread(target=lambda: [orders.claim() for _ in range(3000)])
        waits.start()
        self.fork_each(3, lambda _: client.close() or [])
        waits.join(PATIENCE)
        self.assertEqual(orders.claim(), 3002)

    def test_multiprocessing(self):
        for method in ("fork", "spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(4) as pool:
                ids = pool.starmap(claim_in_process, [(self.idd.socket, 300)] * 8)
            self.assertDistinct(sum(ids, []))

    def test_kills_and_restarts_of_idd(self):
        orders = self.client().tag("orders")
        stop = threading.Event()

        def claim():
            ids = []
            while not stop.is_set():
                ids.append(orders.claim())
                if len(ids) % 100 == 0:
                    time.sleep(0)
            return ids

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            futures = [pool.submit(claim) for _ in range(4)]
            for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGTERM):
                time.sleep(0.2)
                self.idd.process.send_signal(how)
                self.idd.process.wait()
                self.idd.start()
            stop.set()
            found = [future.result(PATIENCE) for future in futures]
        for ids in found:
            self.assertTrue(all(a < b for a, b in zip(ids, ids[1:])))
        self.assertDistinct(sum(found, []))


class Leftovers(ClientTest):
    def test_nothing_is_left_after_close(self):
        def round_trip():
            with idclient.Client(self.idd.socket, timeout=PATIENCE, log=lambda *_: None) as client:
                tags = [client.tag("orders"), client.tag("orders", 4)]
                for tag in tags:
                    tag.claim()
                    tag.claim_many(3)
                    tag.claim_range(2)
                    tag.info()
                try:
                    client.tag("nobody")
                except idclient.Error:
                    pass
                tags[0].close()

        def figures():
            gc.collect()
            with open("/proc/self/maps", encoding="ascii") as maps:
                mappings = sum(1 for line in maps if "memfd" in line)
            return len(os.listdir("/proc/self/fd")), mappings, tracemalloc.get_traced_memory()[0]

        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        for _ in range(20):
            round_trip()
        before = figures()
        for _ in range(200):
            round_trip()
        after = figures()
        self.assertEqual(after[:2], before[:2])
        self.assertLess(after[2] - before[2], 20_000)

    def test_references_are_counted(self):
        client = self.client()
        orders = client.tag("orders")
        calls = [orders.claim, lambda: orders.claim(timeout=1), orders.try_claim, orders.info,
                 lambda: orders.claim_many(2), lambda: orders.claim_range(2), lambda: next(orders)]  # fmt: skip
        for call in calls:
            call()
        before = [sys.getrefcount(thing) for thing in (client, orders, None, range, array.array)]
        for call in calls:
            for _ in range(1000):
                call()
        after = [sys.getrefcount(thing) for thing in (client, orders, None, range, array.array)]
        for a, b in zip(before, after):
            self.assertLess(abs(a - b), 100)

    def test_cycle_through_the_log_function_is_collected(self):
        class Holder:
            pass

        holder = Holder()
        holder.client = idclient.Client(
            self.idd.socket, timeout=PATIENCE, log=lambda level, message, holder=holder: None
        )
        holder.tag = holder.client.tag("orders")
        holder.tag.claim()
        before = len(os.listdir("/proc/self/fd"))
        del holder
        gc.collect()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before - 1)


if __name__ == "__main__":
    unittest.main()
