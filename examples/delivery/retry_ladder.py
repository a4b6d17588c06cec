"""A retry ladder: what fails is tried again later, ever less often: `python retry_ladder.py`.

Each rung is a topic with a delay of its own (`penstock.delay.ms`). The broker holds records back,
so that the worker never sleeps, keeps nothing in memory and loses nothing when it dies: it reads
all rungs like any topic. Each step checks its result: the exit code is 0 only if all of them hold.
"""

import time
from collections import defaultdict
from dataclasses import dataclass, field

import penstock

RUNGS_MS = {"payments.retry.250ms": 250, "payments.retry.500ms": 500, "payments.retry.1s": 1_000}
LADDER = ["payments", *RUNGS_MS, "payments.failed"]  # where a payment goes when it fails
# How many times the bank refuses each payment before it accepts it.
REFUSALS = {b"coffee": 0, b"book": 1, b"bicycle": 2, b"car": 3, b"castle": 4}


@dataclass
class Worker:
    """Pays what it can and sends the rest one rung up."""

    producer: penstock.Producer
    tries: defaultdict[bytes, int] = field(default_factory=lambda: defaultdict(int))
    ended: dict[bytes, str] = field(default_factory=dict)

    def handle(self, message: penstock.Message) -> None:
        payment = message.value or b""
        if message.topic in RUNGS_MS:
            check_wait(message, RUNGS_MS[message.topic])
        self.tries[payment] += 1
        if self.tries[payment] > REFUSALS[payment]:
            self.ended[payment] = "paid"
            return
        rung = LADDER[LADDER.index(message.topic) + 1]
        self.producer.send_and_wait(rung, payment, key=message.key)
        step(f"{payment.decode()} was refused in {message.topic}, and goes to {rung}")
        if rung == LADDER[-1]:
            self.ended[payment] = "failed"


def main() -> None:
    with penstock.Broker() as broker:
        create_topics(broker)
        with penstock.Producer(broker.bootstrap_servers) as producer:
            for payment in REFUSALS:
                producer.send_and_wait("payments", payment, key=payment)
            worker = Worker(producer)
            with penstock.Consumer(
                ["payments", *RUNGS_MS],
                bootstrap_servers=broker.bootstrap_servers,
                group="payers",
                from_beginning=True,
                timeout_s=60,
            ) as consumer:
                for message in consumer:
                    worker.handle(message)
                    if len(worker.ended) == len(REFUSALS):
                        break
    expected = {payment: "paid" if count < 4 else "failed" for payment, count in REFUSALS.items()}
    check(worker.ended == expected, "every payment was paid, or failed after the last rung")
    check(worker.tries[b"castle"] == 4, "the last one was tried once in every topic")
    print("\nAll steps held.")


def create_topics(broker: penstock.Broker) -> None:
    for topic in LADDER:
        delay_ms = RUNGS_MS.get(topic)
        config = {"message.timestamp.type": "LogAppendTime", "penstock.delay.ms": str(delay_ms)}
        broker.create_topic(topic, config=config if delay_ms else {})


def check_wait(message: penstock.Message, delay_ms: int) -> None:
    waited_ms = time.time() * 1000 - message.timestamp_ms
    check(waited_ms >= delay_ms, f"no record of {message.topic} comes early")


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise SystemExit(f"this does not hold: {claim}")


def step(text: str) -> None:
    print(f"- {text}")


if __name__ == "__main__":
    main()
