#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The driver of the Python client; see ../README.md."""

import os
import sys
import threading

import idclient


class Driver:
    def __init__(self):
        self.client = None
        self.tags = {}

    def tag(self, handle):
        if handle not in self.tags:
            raise idclient.InvalidError(f"there is no handle {handle}")
        return self.tags[handle]

    def do_open(self, path, timeout_ms):
        self.client = idclient.Client(path, timeout=int(timeout_ms) / 1000)
        self.tags = {}

    def do_tag(self, handle, name, block_size="0"):
        if self.client is None:
            raise idclient.InvalidError("there is no client")
        self.tags[handle] = self.client.tag(name, int(block_size))

    def do_claim(self, handle, timeout_ms=None):
        timeout = None if timeout_ms is None else int(timeout_ms) / 1000
        return [self.tag(handle).claim(timeout=timeout)]

    def do_many(self, handle, count):
        return self.tag(handle).claim_many(int(count))

    def do_range(self, handle, count):
        ids = self.tag(handle).claim_range(int(count))
        return [ids.start, len(ids)]

    def do_info(self, handle):
        info = self.tag(handle).info()
        return [info.mode, info.order, info.state.replace(" ", "_"), info.step, info.available]

    def do_loop(self, handle, count, threads, path):
        tag = self.tag(handle)
        found = [[] for _ in range(int(threads))]

        def claim(ids):
            while len(ids) < int(count):
                try:
                    ids.append(tag.claim())
                except idclient.Error as error:
                    if not error.retryable:
                        raise

        workers = [threading.Thread(target=claim, args=(ids,)) for ids in found]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        with open(path, "w", encoding="ascii") as file:
            for number, ids in enumerate(found):
                file.writelines(f"{number} {one}\n" for one in ids)

    def do_fork(self, handle, count):
        tag = self.tag(handle)
        reading, writing = os.pipe()
        child = os.fork()
        mine = [tag.claim() for _ in range(int(count))]
        if child == 0:
            with os.fdopen(writing, "w", encoding="ascii") as pipe:
                pipe.write(" ".join(map(str, mine)))
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading, encoding="ascii") as pipe:
            of_child = [int(word) for word in pipe.read().split()]
        os.waitpid(child, 0)
        return mine + of_child

    def do_close(self, *tag):
        if tag:
            self.tag(tag[1]).close()
        elif self.client is not None:
            self.client.close()

    def do_version(self):
        return [idclient.__version__]


def main():
    driver = Driver()
    for line in sys.stdin:
        name, *arguments = line.rstrip("\n").split(" ")
        try:
            results = getattr(driver, "do_" + name)(*arguments)
            print(" ".join(["ok", *map(str, results or [])]), flush=True)
        except idclient.Error as error:
            print("error", error.status, " ".join(str(error).split()), flush=True)
    driver.do_close()


if __name__ == "__main__":
    main()
