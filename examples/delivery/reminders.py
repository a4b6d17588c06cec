"""A reminder service without a scheduler: `python reminders.py`.

A reminder is a record that waits in the broker until it is due (`penstock.delayed.messages`). The
service that sends reminders keeps nothing and may die at any time; the one that delivers them reads
a topic. A reminder is moved or taken back by its id, with an exact answer. Each step checks its
result: the exit code is 0 only if all of them hold.
"""

import time
from datetime import UTC, datetime, timedelta

import penstock

TOPIC = "reminders"


def main() -> None:
    with penstock.Broker() as broker:
        broker.create_topic(TOPIC, config={"penstock.delayed.messages": "true"})
        due = remind(broker.bootstrap_servers)
        deliver(broker.bootstrap_servers, due)
    print("\nAll steps held.")


def remind(servers: str) -> dict[bytes, datetime]:
    """Promises reminders, changes its mind about some, and ends."""
    now = datetime.now(UTC)
    due = {
        b"call Ada": now + timedelta(seconds=2.5),
        b"water the plants": now + timedelta(seconds=2),
    }
    with penstock.Producer(servers) as producer:
        for text, deliver_at in due.items():
            producer.send(TOPIC, text, deliver_at=deliver_at)
        producer.send(TOPIC, b"pay the rent", delay_s=3600, delay_id="rent")
        producer.send(TOPIC, b"see the dentist", delay_s=60, delay_id="dentist")

        answer = producer.cancel(TOPIC, "dentist")
        check(answer == "cancelled", "a reminder that waits is cancelled, and never comes")
        check(producer.cancel(TOPIC, "party") == "unknown", "nobody was reminded of a party")

        due[b"pay the rent today"] = datetime.now(UTC) + timedelta(seconds=1)
        producer.send_and_wait(
            TOPIC,
            b"pay the rent today",
            deliver_at=due[b"pay the rent today"],
            delay_id="rent",
        )
        step("the rent is due earlier: the same id replaces the reminder")
    return due


def deliver(servers: str, due: dict[bytes, datetime]) -> None:
    """Reads the topic like any other."""
    came: list[bytes] = []
    with penstock.Consumer(
        TOPIC, bootstrap_servers=servers, from_beginning=True, timeout_s=60
    ) as consumer:
        for message in consumer:
            text = message.value or b""
            late_s = time.time() - due[text].timestamp()
            check(late_s >= 0, f"{text.decode()!r} does not come early")
            came.append(text)
            if len(came) == len(due):
                break
    check(sorted(came) == sorted(due), "every reminder that was kept came once")
    check(came == sorted(due, key=due.__getitem__), "and they came in the order of their times")
    with penstock.Producer(servers) as producer:
        answer = producer.cancel(TOPIC, "rent")
    check(answer == "delivered", "it is too late to cancel what was delivered, and this is said")


def check(holds: bool, claim: str) -> None:
    if not holds:
        raise SystemExit(f"this does not hold: {claim}")
    step(claim)


def step(text: str) -> None:
    print(f"- {text}")


if __name__ == "__main__":
    main()
