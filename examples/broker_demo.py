"""A broker, a producer and a consumer, start to end: run it with `make demo`.

Starts a broker with a process and a folder of its own, sends orders to it by key, reads them all
back, kills the broker without warning and reads them again. Each step checks its own result: the
exit code is 0 only if all of them hold. KEEP=1 leaves the broker running until Ctrl-C.
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
        step(f"a broker serves at {broker.bootstrap_servers} after {passed(started)}")
        broker.create_topic("orders", partitions=PARTITIONS)
        send(broker)
        read(broker, "every order is there, in order for each customer")
        broker.kill()
        broker.start()
        read(broker, "after kill -9 and a restart nothing is missing")
        print(f"\nAll steps held, in {passed(started)}.")
        keep_serving(broker)


def send(broker: penstock.Broker) -> None:
    started = time.monotonic()
    with penstock.Producer(broker.bootstrap_servers, compression="lz4") as producer:
        sent = [
            producer.send("orders", f"{number}".encode(), key=f"customer-{number % CUSTOMERS}")
            for number in range(ORDERS)
        ]
        places = [future.result(timeout=60) for future in sent]
    spread = Counter(place.partition for place in places)
    check(len(spread) == PARTITIONS, "the keys are spread over all partitions")
    step(f"{ORDERS:,} orders were acknowledged in {passed(started)}, on {len(spread)} partitions")


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
                number > latest.get(message.key, -1), f"order {number} comes after its forerunner"
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


def passed(since: float) -> str:
    return f"{time.monotonic() - since:.1f} s"


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise SystemExit(f"does not hold: {claim}")


if __name__ == "__main__":
    main()
