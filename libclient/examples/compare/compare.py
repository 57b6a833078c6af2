#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""compare.py: what the primary key of a MariaDB table costs, by the kind of its ids.

Loads the same rows into tables that differ in the primary key only, and reports the speed of the
INSERT statements, the pages that InnoDB read and wrote for them, and the sizes. Each table has one
secondary index, whose entries contain the primary key. `--index created`, the default, indexes a
time that rises, so that only the primary key can be out of order. `--index customer` indexes random
numbers, which costs every table random accesses. Then it inserts parents with children, once with
ids that the server chooses and once with ids that are known before.

Every round loads every table from empty, in an order that rotates; the figures are the medians of
the rounds. Only the server's time is measured: the text of a statement is made before the clock
starts. The password comes from $MYSQL_PWD, idd's socket from $IDD_SOCKET. The tag needs large steps
(100000), so that no batch waits. The tables are named compare_..., and are dropped at the end.
"""

import argparse
import datetime
import json
import os
import random
import statistics
import sys
import time
import uuid

import idclient
import pymysql

START = datetime.datetime(2025, 1, 1)
CUSTOMERS = 100_000
NOTE = "A note of sixty characters, which stands for further columns"
ITEMS_PER_ORDER = 3
HOSTS = 4
BATCHES_OF_LEASE = 10
SETTINGS = (
    "version",
    "innodb_buffer_pool_size",
    "innodb_log_file_size",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_page_size",
    "innodb_autoinc_lock_mode",
)


def uuid7():
    """A UUID of version 7: milliseconds, their fraction in 12 bits, then 62 random bits."""
    milliseconds, rest = divmod(time.time_ns(), 1_000_000)
    value = milliseconds << 80 | 7 << 76 | rest * 4096 // 1_000_000 << 64 | 2 << 62
    return uuid.UUID(int=value | random.getrandbits(62))


class Kind:
    """A kind of primary key. `make(count)` returns the ids of a batch, `literal` one as SQL."""

    def __init__(self, name, column, make, literal):
        self.name = name
        self.column = column
        self.make = make
        self.literal = literal
        self.table = "compare_" + name.lower().translate(str.maketrans(" ,()", "____"))


def many_hosts(tag, batch):
    """Ids as if HOSTS hosts inserted in turn, each from a lease of its own."""
    leases = [[] for _ in range(HOSTS)]
    turn = 0

    def make(count):
        nonlocal turn
        turn = (turn + 1) % HOSTS
        lease = leases[turn]
        if len(lease) < count:
            lease += tag.claim_many(batch * BATCHES_OF_LEASE)
        ids = lease[:count]
        del lease[:count]
        return ids

    return make


def kinds_of(tag, batch):
    def uuids(make):
        return lambda count: [make() for _ in range(count)]

    binary = "BINARY(16) NOT NULL"
    text = "CHAR(36) CHARACTER SET ascii NOT NULL"
    in_hex = "0x{0.hex}".format
    return [
        Kind("AUTO_INCREMENT", "BIGINT NOT NULL AUTO_INCREMENT", None, None),
        Kind("idd", "BIGINT NOT NULL", tag.claim_many, str),
        Kind(f"idd, {HOSTS} hosts", "BIGINT NOT NULL", many_hosts(tag, batch), str),
        Kind("UUID v7 BINARY(16)", binary, uuids(uuid7), in_hex),
        Kind("UUID v4 BINARY(16)", binary, uuids(uuid.uuid4), in_hex),
        Kind("UUID v4 CHAR(36)", text, uuids(uuid.uuid4), "'{0}'".format),
    ]


def chosen(kinds, words):
    words = words.lower().split(",")
    return [kind for kind in kinds if any(word in kind.name.lower() for word in words)]


class Database:
    """A connection that measures the time of its statements."""

    def __init__(self, arguments):
        self.connection = pymysql.connect(
            unix_socket=arguments.socket,
            host=arguments.host,
            port=arguments.port,
            user=arguments.user,
            password=os.environ.get("MYSQL_PWD", ""),
            database=arguments.database,
            autocommit=True,
        )

    def timed(self, statement):
        """Runs it and returns the seconds."""
        begin = time.perf_counter()
        self.connection.query(statement)
        return time.perf_counter() - begin

    def rows(self, statement):
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall()

    def pages(self):
        """How many pages InnoDB has read from and written to its files since it started."""
        status = dict(self.rows("SHOW GLOBAL STATUS LIKE 'Innodb_pages_%'"))
        return int(status["Innodb_pages_read"]), int(status["Innodb_pages_written"])


def create_table(database, kind, index):
    database.timed(f"DROP TABLE IF EXISTS {kind.table}")
    database.timed(
        f"CREATE TABLE {kind.table} (id {kind.column}, customer INT NOT NULL,"
        " created DATETIME NOT NULL, note VARCHAR(100) NOT NULL,"
        f" PRIMARY KEY (id), KEY secondary ({index})) ENGINE = InnoDB"
    )


def insert_of(kind, ids, numbers, place):
    """An INSERT of rows with the time `place`. Without ids, the server chooses them."""
    created = (START + datetime.timedelta(seconds=place)).isoformat(" ")
    columns = "customer, created, note" if ids is None else "id, customer, created, note"
    firsts = [""] * len(numbers) if ids is None else [kind.literal(id) + "," for id in ids]
    values = (
        f"({first}{number},'{created}','{NOTE}')" for first, number in zip(firsts, numbers)
    )
    return f"INSERT INTO {kind.table} ({columns}) VALUES {','.join(values)}"


def load(database, kind, arguments, seed):
    """Fills the table; returns what the round measured."""
    numbers = random.Random(seed)
    create_table(database, kind, arguments.index)
    read, written = database.pages()
    times, id_seconds = [], 0.0
    for place in range(arguments.rows // arguments.batch):
        customers = [numbers.randrange(CUSTOMERS) for _ in range(arguments.batch)]
        begin = time.perf_counter()
        ids = None if kind.make is None else kind.make(arguments.batch)
        id_seconds += time.perf_counter() - begin
        times.append(database.timed(insert_of(kind, ids, customers, place)))
    read_after, written_after = database.pages()
    tail = times[-max(1, len(times) // 10) :]
    thousands = len(times) * arguments.batch / 1000
    return {
        "rows_per_s": arguments.batch / statistics.fmean(times),
        "rows_per_s_last_tenth": arguments.batch / statistics.fmean(tail),
        "id_ns": 0 if kind.make is None else id_seconds / (len(times) * arguments.batch) * 1e9,
        "pages_read_per_1000_rows": (read_after - read) / thousands,
        "pages_written_per_1000_rows": (written_after - written) / thousands,
        **sizes(database, kind),
    }


def sizes(database, kind):
    database.rows(f"ANALYZE TABLE {kind.table}")
    ((data, index),) = database.rows(
        "SELECT DATA_LENGTH, INDEX_LENGTH FROM information_schema.TABLES"
        f" WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{kind.table}'"
    )
    ((file,),) = database.rows(
        "SELECT FILE_SIZE FROM information_schema.INNODB_SYS_TABLESPACES"
        f" WHERE NAME = CONCAT(DATABASE(), '/{kind.table}')"
    )
    ((rows,),) = database.rows(f"SELECT COUNT(*) FROM {kind.table}")
    return {"data_bytes": data, "index_bytes": index, "file_bytes": file, "rows": rows}


def summary(rounds):
    speeds = [one["rows_per_s"] for one in rounds]
    medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    return {**medians, "rows_per_s_min": min(speeds), "rows_per_s_max": max(speeds)}


def compare_keys(database, kinds, arguments):
    measured = {kind.name: [] for kind in kinds}
    for number in range(arguments.rounds):
        for place in range(len(kinds)):
            kind = kinds[(place + number) % len(kinds)]
            result = load(database, kind, arguments, seed=number)
            measured[kind.name].append(result)
            database.timed(f"DROP TABLE {kind.table}")
            progress(f"round {number + 1}, {kind.name}: {result['rows_per_s']:,.0f} rows/s")
    return [{"name": name, **summary(rounds)} for name, rounds in measured.items()]


def create_parents(database, key):
    database.timed("DROP TABLE IF EXISTS compare_items, compare_orders")
    database.timed(
        f"CREATE TABLE compare_orders (id BIGINT NOT NULL {key} PRIMARY KEY, customer INT NOT NULL)"
        " ENGINE = InnoDB"
    )
    database.timed(
        f"CREATE TABLE compare_items (id BIGINT NOT NULL {key} PRIMARY KEY,"
        " order_id BIGINT NOT NULL, article INT NOT NULL,"
        " FOREIGN KEY (order_id) REFERENCES compare_orders (id)) ENGINE = InnoDB"
    )


def items_without_ids(orders):
    values = (f"({order},{article})" for order in orders for article in range(ITEMS_PER_ORDER))
    return f"INSERT INTO compare_items (order_id, article) VALUES {','.join(values)}"


def order_by_order(database, tag, count):
    """The reply to each INSERT has LAST_INSERT_ID, so that there is no further SELECT."""
    orders = []
    seconds = 0.0
    for customer in range(count):
        seconds += database.timed(f"INSERT INTO compare_orders (customer) VALUES ({customer})")
        orders.append(database.connection.insert_id())
    return seconds + database.timed(items_without_ids(orders))


def returning(database, tag, count):
    """MariaDB's INSERT ... RETURNING sends the ids of all rows."""
    values = ",".join(f"({customer})" for customer in range(count))
    begin = time.perf_counter()
    orders = database.rows(f"INSERT INTO compare_orders (customer) VALUES {values} RETURNING id")
    seconds = time.perf_counter() - begin
    return seconds + database.timed(items_without_ids([order for (order,) in orders]))


def known_before(database, tag, count):
    begin = time.perf_counter()
    orders = tag.claim_many(count)
    ids = iter(tag.claim_many(count * ITEMS_PER_ORDER))
    seconds = time.perf_counter() - begin
    values = ",".join(f"({order},{customer})" for customer, order in enumerate(orders))
    seconds += database.timed(f"INSERT INTO compare_orders (id, customer) VALUES {values}")
    values = ",".join(
        f"({next(ids)},{order},{article})" for order in orders for article in range(ITEMS_PER_ORDER)
    )
    return seconds + database.timed(
        f"INSERT INTO compare_items (id, order_id, article) VALUES {values}"
    )


WAYS = {
    "AUTO_INCREMENT, LAST_INSERT_ID": (order_by_order, "AUTO_INCREMENT"),
    "AUTO_INCREMENT, RETURNING": (returning, "AUTO_INCREMENT"),
    "idd, known before": (known_before, ""),
}


def insert_parents(database, tag, arguments, name):
    """Returns microseconds per row, parents and children alike, with the commits."""
    insert, key = WAYS[name]
    create_parents(database, key)
    orders_per_batch = arguments.batch // (1 + ITEMS_PER_ORDER)
    batches = max(1, arguments.rows // 10 // arguments.batch)
    seconds = 0.0
    for _ in range(batches):
        seconds += database.timed("BEGIN")
        seconds += insert(database, tag, orders_per_batch)
        seconds += database.timed("COMMIT")
    ((items,),) = database.rows(
        "SELECT COUNT(*) FROM compare_items JOIN compare_orders ON compare_orders.id = order_id"
    )
    if items != batches * orders_per_batch * ITEMS_PER_ORDER:
        sys.exit(f"compare.py: {name}: {items} items have an order")
    database.timed("DROP TABLE compare_items, compare_orders")
    return seconds / (batches * orders_per_batch * (1 + ITEMS_PER_ORDER)) * 1e6


def compare_parents(database, tag, arguments):
    measured = {name: [] for name in WAYS}
    for number in range(arguments.rounds):
        for place in range(len(WAYS)):
            name = list(WAYS)[(place + number) % len(WAYS)]
            measured[name].append(insert_parents(database, tag, arguments, name))
            progress(f"round {number + 1}, {name}: {measured[name][-1]:.1f} us a row")
    orders = arguments.batch // (1 + ITEMS_PER_ORDER)
    return [
        {
            "name": name,
            "us_per_row": statistics.median(times),
            "statements_per_batch": orders + 1 if WAYS[name][0] is order_by_order else 2,
        }
        for name, times in measured.items()
    ]


def progress(text):
    print(text, file=sys.stderr, flush=True)


def print_report(report):
    print(", ".join(f"{name}={value}" for name, value in report["settings"].items()))
    print(f"{report['rows']:,} rows, {report['batch']:,} a statement, secondary index on"
          f" {report['index']}, medians of {report['rounds']} rounds\n")
    print("| primary key | rows/s | range | rows/s, last tenth | pages read | pages written"
          " | table | index | file | ns per id |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    for key in report["keys"]:
        sizes_bytes = (key[name] for name in ("data_bytes", "index_bytes", "file_bytes"))
        mib = [f"{size / 2**20:.1f} MiB" for size in sizes_bytes]
        print(
            f"| {key['name']} | {key['rows_per_s']:,.0f}"
            f" | {key['rows_per_s_min']:,.0f} to {key['rows_per_s_max']:,.0f}"
            f" | {key['rows_per_s_last_tenth']:,.0f}"
            f" | {key['pages_read_per_1000_rows']:,.1f} | {key['pages_written_per_1000_rows']:,.1f}"
            f" | {' | '.join(mib)} | {key['id_ns']:,.0f} |"
        )
    print("\n| parents with children | us per row | INSERTs per batch |\n|---|--:|--:|")
    for way in report["parents"]:
        print(f"| {way['name']} | {way['us_per_row']:.1f} | {way['statements_per_batch']} |")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", help="Unix socket of the server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=3306)
    parser.add_argument("--user", default="root")
    parser.add_argument("--database", default="test")
    parser.add_argument("--tag", default="compare")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=1000, help="rows of an INSERT")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--kinds", default="", help="only kinds with one of these words in the name, as in 'auto,v7'"
    )
    parser.add_argument(
        "--index",
        choices=("created", "customer"),
        default="created",
        help="column of the secondary index: rising or random",
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.batch < 1 + ITEMS_PER_ORDER:
        parser.error(f"--batch must be at least {1 + ITEMS_PER_ORDER}, got {arguments.batch}")
    if arguments.rows < 1 or arguments.rows % arguments.batch:
        parser.error(f"--rows must be a multiple of --batch, got {arguments.rows}")
    if arguments.rounds < 1:
        parser.error(f"--rounds must be at least 1, got {arguments.rounds}")
    return arguments


def main():
    arguments = parse_arguments()
    database = Database(arguments)
    names = ",".join(f"@@{name}" for name in SETTINGS)
    report = {
        "settings": dict(zip(SETTINGS, database.rows(f"SELECT {names}")[0])),
        "rows": arguments.rows,
        "batch": arguments.batch,
        "rounds": arguments.rounds,
        "index": arguments.index,
    }
    with idclient.Client(timeout=60) as client:
        tag = client.tag(arguments.tag)
        kinds = chosen(kinds_of(tag, arguments.batch), arguments.kinds)
        report["keys"] = compare_keys(database, kinds, arguments)
        report["parents"] = compare_parents(database, tag, arguments)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        print_report(report)


if __name__ == "__main__":
    main()
