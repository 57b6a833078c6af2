#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""orders.py URL [--workers N] [--orders N]: SQLAlchemy models whose primary keys are ids of idd.

URL is sqlite:///FILE or mysql+pymysql://USER@localhost/DATABASE?unix_socket=PATH; the password may
be in $MYSQL_PWD. The tags are `orders` and `order_items`.

Each worker is a forked process. It inserts half of its orders one at a time, as a web application
does, and the other half in batches. The two differ in where the ids come from:

- `default=tag.claim` claims at the flush. It needs no further code, and each row is a statement.
- An id that is passed to the constructor is known at once. SQLAlchemy then sends all rows of a
  table with one executemany(), which PyMySQL turns into one INSERT of many rows.
"""

import argparse
import collections
import multiprocessing
import os
import sys

import idclient
import sqlalchemy
from sqlalchemy import BigInteger, Column, ForeignKey, Integer, String, event
from sqlalchemy.orm import Session, declarative_base, relationship

ITEMS_PER_ORDER = 3
BATCH_ORDERS = 250

Base = declarative_base()

# Opened before the fork and used in every worker: the processes then share idd's memory, and no id
# comes twice. $IDD_SOCKET, else /run/idd/idd.sock.
client = idclient.Client()
order_ids = client.tag("orders")
item_ids = client.tag("order_items")


class Order(Base):
    __tablename__ = "orders"

    # The program brings the ids, so the column has no AUTO_INCREMENT.
    id = Column(BigInteger, primary_key=True, autoincrement=False, default=order_ids.claim)
    channel = Column(String(16), nullable=False)
    customer = Column(String(64), nullable=False, index=True)
    items = relationship("OrderItem", back_populates="order")


class OrderItem(Base):
    __tablename__ = "order_items"

    id = Column(BigInteger, primary_key=True, autoincrement=False, default=item_ids.claim)
    order_id = Column(BigInteger, ForeignKey("orders.id"), nullable=False)
    article = Column(String(64), nullable=False)
    quantity = Column(Integer, nullable=False)
    order = relationship("Order", back_populates="items")


def turn_on_foreign_keys(connection, _record):
    connection.execute("PRAGMA foreign_keys = ON")


def items_of_an_order():
    return [OrderItem(article=f"article {n}", quantity=1) for n in range(ITEMS_PER_ORDER)]


def open_database(url):
    url = sqlalchemy.engine.make_url(url)
    if url.get_backend_name() == "sqlite":
        # Only one process at a time writes to a SQLite file; the others wait.
        engine = sqlalchemy.create_engine(url, connect_args={"timeout": 60})
        event.listen(engine, "connect", turn_on_foreign_keys)
        return engine
    if url.password is None and "MYSQL_PWD" in os.environ:
        url = url.set(password=os.environ["MYSQL_PWD"])
    return sqlalchemy.create_engine(url)


def insert_one(engine, number):
    """One order in a transaction of its own; `default` claims the ids."""
    with Session(engine) as session, session.begin():
        order = Order(channel="python", customer=f"customer {number % 100}")
        order.items = items_of_an_order()
        session.add(order)


def insert_batch(engine, numbers):
    """All orders in one transaction, with ids that are claimed before it begins."""
    ids = order_ids.claim_many(len(numbers))
    ids_of_items = iter(item_ids.claim_many(len(numbers) * ITEMS_PER_ORDER))
    with Session(engine) as session, session.begin():
        for id, number in zip(ids, numbers):
            session.add(Order(id=id, channel="python", customer=f"customer {number % 100}"))
            for item in items_of_an_order():
                item.id = next(ids_of_items)
                item.order_id = id
                session.add(item)


def work(url, numbers, results):
    # Connections must not cross a fork, so that each worker has an engine of its own.
    engine = open_database(url)
    statements = collections.Counter()
    half = "one by one"

    @event.listens_for(engine, "before_cursor_execute")
    def count(_connection, _cursor, statement, *_):
        statements[half] += statement.startswith("INSERT")

    middle = len(numbers) // 2
    for number in numbers[:middle]:
        insert_one(engine, number)
    half = "batches"
    for first in range(middle, len(numbers), BATCH_ORDERS):
        insert_batch(engine, numbers[first : first + BATCH_ORDERS])
    engine.dispose()
    results.put((len(numbers), statements))


def run(url, workers, orders):
    """Returns the number of orders, and of INSERT statements per way of inserting."""
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    shares = [range(first, orders, workers) for first in range(workers)]
    processes = [fork.Process(target=work, args=(url, share, results)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode != 0 for process in processes):
        sys.exit("orders.py: a worker failed")
    inserted, statements = 0, collections.Counter()
    for _ in processes:
        count, counter = results.get()
        inserted += count
        statements.update(counter)
    return inserted, statements


def check(engine):
    """Reads the relation back: every order has its items, and every item its order."""
    with Session(engine) as session:
        for order in session.query(Order).filter_by(channel="python").limit(100):
            if len(order.items) != ITEMS_PER_ORDER or order.items[0].order is not order:
                sys.exit(f"orders.py: order {order.id} has {len(order.items)} items")


def main():
    parser = argparse.ArgumentParser(description="Inserts orders with ids of idd.")
    parser.add_argument("url")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--orders", type=int, default=400)
    arguments = parser.parse_args()
    engine = open_database(arguments.url)
    Base.metadata.create_all(engine)
    engine.dispose()
    inserted, statements = run(arguments.url, arguments.workers, arguments.orders)
    check(engine)
    print(f"orders={inserted} items={inserted * ITEMS_PER_ORDER}")
    print(f"INSERT statements: {dict(statements)}", file=sys.stderr)


if __name__ == "__main__":
    main()
