"""One member of why_a_coordinator.py, as a process that can be paused: reads one message, holds it,
and processes it when a line arrives on stdin; then tries to commit.

`python paused_member.py zookeeper CONNECT` or `python paused_member.py coordinator BOOTSTRAP`.
"""

import sys

import penstock

SESSION_S = 1.5


def main(kind: str, address: str) -> None:
    with open_member(kind, address) as member:
        [message] = member.poll_batch(1, 60)
        print(f"holds {message.offset}", flush=True)
        sys.stdin.readline()
        print(f"processed {message.offset}", flush=True)
        try:
            member.commit()
            print("committed or left to the owner", flush=True)
        except penstock.ConsumeFailed as error:
            print(f"refused {error}", flush=True)


def open_member(kind: str, address: str) -> penstock.Consumer | penstock.ZooKeeperConsumer:
    if kind == "zookeeper":
        return penstock.ZooKeeperConsumer(
            "paused",
            zookeeper=address,
            group="older",
            from_beginning=True,
            auto_commit=False,
            session_timeout_s=SESSION_S,
        )
    return penstock.Consumer(
        "paused",
        bootstrap_servers=address,
        group="newer",
        from_beginning=True,
        auto_commit=False,
        config={"session.timeout.ms": round(SESSION_S * 1000), "heartbeat.interval.ms": 300},
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
