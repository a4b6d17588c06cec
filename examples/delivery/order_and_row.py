"""An order and its database row agree, wherever the shop dies: `python order_and_row.py`.

The order is a half message: stored before the row is written, and seen by consumers only if it was.
The shop is killed before each of its steps. Another process of its group is asked about what was
left, looks into the database, and answers. In the end, each row has its order, and each order its
row. Each step checks its result: the exit code is 0 only if all of them hold.
"""

import multiprocessing
import os
import signal
import sqlite3
import tempfile
from pathlib import Path

import penstock
from penstock import HalfCheck, HalfMessages
from penstock.client.half_messages import Decision

TOPIC, GROUP = "orders", "shop"
STEPS = ("before the half", "before the row", "before the decision", "never")
SOON = {"penstock.half.first.check.ms": "500", "penstock.half.check.interval.ms": "500"}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, penstock.Broker(config=SOON) as broker:
        database = str(Path(folder) / "shop.db")
        with sqlite3.connect(database) as connection:
            connection.execute("create table orders (id text primary key, is_paid integer)")
        connection.close()
        make_topics(broker)
        for step in STEPS:
            sell_and_die(broker.bootstrap_servers, database, step)
        with HalfMessages(
            TOPIC,
            bootstrap_servers=broker.bootstrap_servers,
            group=GROUP,
            check=lambda half: look(database, half),
        ) as other:
            # What was left is decided by its row; this one marks the end.
            other.send("the end", local=lambda: "commit", half_id="the end")
            orders = read_orders(broker.bootstrap_servers, database)
        compare(orders, database)
    print("\nAll steps held.")


def make_topics(broker: penstock.Broker) -> None:
    """As `penstock topic create orders --half --half-group shop` does."""
    bound = {"penstock.half.groups": GROUP}
    for name, configs in (
        (TOPIC, {}),
        (f"{GROUP}.half.checks", {}),
        (f"{TOPIC}.half.expired", {}),
        (f"{TOPIC}.half.decisions", bound),
        (f"{TOPIC}.half", bound),
    ):
        broker.create_topic(name, config=configs)


def sell_and_die(servers: str, database: str, step: str) -> None:
    context = multiprocessing.get_context("spawn")
    shop = context.Process(target=sell, args=(servers, database, step))
    shop.start()
    shop.join()
    wanted = 0 if step == "never" else -signal.SIGKILL
    check(shop.exitcode == wanted, f"the shop dies {step}")


def sell(servers: str, database: str, dies: str) -> None:
    """In a process of its own: one order, a row, a decision."""

    def die_if(step: str) -> None:
        if step == dies:
            os.kill(os.getpid(), signal.SIGKILL)

    def local() -> Decision:
        die_if("before the row")
        with sqlite3.connect(database) as connection:
            connection.execute("insert into orders values (?, 1)", [dies])
        connection.close()
        die_if("before the decision")
        return "commit"

    with HalfMessages(TOPIC, bootstrap_servers=servers, group=GROUP) as half:
        die_if("before the half")
        half.send(dies, local=local, half_id=dies)


def look(database: str, half: HalfCheck) -> Decision:
    """The row decides. A shop that is slow rather than dead would be "unknown" for a while; here
    nobody else is left."""
    return "commit" if half.half_id in read_rows(database) else "rollback"


def read_rows(database: str) -> set[str]:
    connection = sqlite3.connect(database)
    try:
        return {row[0] for row in connection.execute("select id from orders")}
    finally:
        connection.close()


def read_orders(servers: str, database: str) -> list[str]:
    """Until every row has its order, and the end has come."""
    wanted = read_rows(database) | {"the end"}
    orders: list[str] = []
    with penstock.Consumer(
        TOPIC, bootstrap_servers=servers, from_beginning=True, timeout_s=60
    ) as consumer:
        for message in consumer:
            orders.append((message.value or b"").decode())
            if wanted <= set(orders):
                break
    return orders


def compare(orders: list[str], database: str) -> None:
    rows = read_rows(database)
    check(rows == {"before the decision", "never"}, "two shops lived to write their row")
    check(len(orders) == len(set(orders)), "no order came twice")
    check(set(orders) - {"the end"} == rows, "each row has its order, and each order its row")


def check(is_right: bool, what: str) -> None:
    if not is_right:
        raise SystemExit(f"wrong: {what}")
    print(f"  {what}")


if __name__ == "__main__":
    main()
