"""A broker, a producer and a consumer, start to end: `python examples/broker_demo.py`.

Starts a broker in its own process and folder, sends keyed orders to it, reads them all back, kills
the broker with SIGKILL and reads them again. Each step checks its result: the exit code is 0 only
if all of them hold. KEEP=1 keeps the broker running until Ctrl-C.
"""

import os
import signal
import time
from collections import Counter

import penstock

ORDERS = 20_000
CUSTOMERS = 500
PARTITIONS = 6


def main() -> None:
    started = time.monotonic()
    with penstock.Broker() as broker:
        step(f"a broker is serving at {broker.bootstrap_servers} after {elapsed(started)}")
        broker.create_topic("orders", partitions=PARTITIONS)
        send(broker)
        read(broker, "every order is present, in order per customer")
        broker.kill()
        broker.start()
        read(broker, "after kill -9 and a restart nothing is missing")
        print(f"\nAll steps held, in {elapsed(started)}.")
        keep_serving(broker)


def send(broker: penstock.Broker) -> None:
    started = time.monotonic()
    with penstock.Producer(broker.bootstrap_servers, compression="lz4") as producer:
        sent = [
            producer.send("orders", f"{number}".encode(), key=f"customer-{number % CUSTOMERS}")
            for number in range(ORDERS)
        ]
        acknowledged = [future.result(timeout=60) for future in sent]
    spread = Counter(message.partition for message in acknowledged)
    check(len(spread) == PARTITIONS, "the keys are spread over all partitions")
    step(f"{ORDERS:,} orders were acknowledged in {elapsed(started)}, on {len(spread)} partitions")


def read(broker: penstock.Broker, claim: str) -> None:
    latest: dict[bytes, int] = {}
    seen: set[int] = set()
    with penstock.Consumer(
        "orders", bootstrap_servers=broker.bootstrap_servers, from_beginning=True, timeout_s=30
    ) as consumer:
        for message in consumer:
            assert message.key is not None
            assert message.value is not None
            number = int(message.value)
            check(
                number > latest.get(message.key, -1),
                f"order {number} comes after the earlier ones of its customer",
            )
            latest[message.key] = number
            seen.add(number)
            if len(seen) == ORDERS:
                break
    check(seen == set(range(ORDERS)), "no order is missing")
    step(claim)


def keep_serving(broker: penstock.Broker) -> None:
    if os.environ.get("KEEP"):
        print(f"Serving at {broker.bootstrap_servers} until Ctrl-C. Try: ")
        print(f"  penstock consume orders --from-beginning --bootstrap {broker.bootstrap_servers}")
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


def step(text: str) -> None:
    print(f"- {text}")


def elapsed(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise SystemExit(f"failed: {claim}")


if __name__ == "__main__":
    main()
