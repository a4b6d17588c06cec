"""Consistency against availability on three brokers: what acks, min.insync.replicas and
unclean.leader.election.enable keep, lose or refuse.

`python availability.py [CELL ...] [--markdown]` runs all 18 cells, or those named as
acks/min.insync.replicas/unclean: `all/2/false 1/1/true`. Needs Java for ZooKeeper and nothing else.
Each cell has a topic with three replicas. All of them go through the same two disasters, one write
before each blow. What became of the writes is printed, and compared with what the settings promise:
the exit code is 0 only if every cell does what it should.
"""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from itertools import islice, product
from typing import Literal, NamedTuple

from broker_faults import (
    PATIENCE_S,
    SETTINGS,
    Freezer,
    create,
    kill,
    producer_at,
    wait_in_sync,
    wait_led,
    wait_stored,
)

import penstock
from penstock.client.errors import SendFailed
from penstock.client.message import RecordMetadata
from penstock.model.errors import ErrorCode
from penstock.testing import Cluster

Acks = Literal["0", "1", "all"]
ACKS: tuple[Acks, ...] = ("0", "1", "all")
NOBODY = -1
EARLIER = ("before", "connects")
Sent = Future[RecordMetadata]
Futures = dict["Cell", Sent]


class Fate(StrEnum):
    KEPT = "kept"  # acknowledged, or sent with acks=0, and there in the end
    LOST = "**lost**"
    REFUSED = "refused"  # NOT_ENOUGH_REPLICAS
    NO_ANSWER = "no answer"  # the producer knows that it must send it again
    NO_LEADER = "no leader"  # nobody takes writes, and nobody can read


class Cell(NamedTuple):
    acks: Acks
    min_in_sync: int
    unclean: bool

    def __str__(self) -> str:
        return f"{self.acks}/{self.min_in_sync}/{self.unclean}".lower()

    def topic(self, disaster: str) -> str:
        return f"{disaster}-{self}".replace("/", "-")

    @property
    def configs(self) -> dict[str, str]:
        return {
            "min.insync.replicas": str(self.min_in_sync),
            "unclean.leader.election.enable": str(self.unclean).lower(),
        }


class Row(NamedTuple):
    """What became of the write before each blow."""

    not_copied: Fate  # both followers are frozen, and then the leader dies
    not_read: Fate  # the leader is frozen when it is sent, and dies
    one_gone: Fate  # one follower has stopped
    both_gone: Fate  # both have stopped, one after the other
    stale: Fate  # the leader has died, too, and the follower that stopped first is back


CELLS = [Cell(*values) for values in product(ACKS, (1, 2, 3), (False, True))]


def promised(cell: Cell) -> Row:
    """The rules that the table shows."""
    unseen = {"0": Fate.LOST, "1": Fate.LOST, "all": Fate.NO_ANSWER}[cell.acks]
    unread = Fate.LOST if cell.acks == "0" else Fate.NO_ANSWER

    def written(in_sync: int, fate: Fate) -> Fate:
        """min.insync.replicas holds for acks=all alone."""
        return Fate.REFUSED if cell.acks == "all" and in_sync < cell.min_in_sync else fate

    survives = Fate.LOST if cell.unclean else Fate.KEPT
    return Row(
        not_copied=unseen,
        not_read=unread,
        one_gone=written(2, survives),
        both_gone=written(1, survives),
        stale=written(1, Fate.KEPT) if cell.unclean else Fate.NO_LEADER,
    )


def main() -> None:
    cells, is_markdown = parse()
    started = time.monotonic()
    with Cluster(brokers=3, config=SETTINGS) as cluster:
        sudden = lose_the_leader(cluster, cells)
        slow = lose_one_after_the_other(cluster, cells)
    rows = {cell: Row(*sudden[cell], *slow[cell]) for cell in cells}
    print(as_markdown(rows) if is_markdown else as_text(rows))
    wrong = [cell for cell, row in rows.items() if row != promised(cell)]
    if wrong:
        expected = {cell: promised(cell) for cell in wrong}
        raise SystemExit(f"not what the settings promise, which is\n{as_text(expected)}")
    if not is_markdown:
        print(f"\nAll steps held, in {time.monotonic() - started:.1f} s.")


# -- The first disaster: the leader dies before its followers have a write ------------------------


def lose_the_leader(cluster: Cluster, cells: Sequence[Cell]) -> dict[Cell, tuple[Fate, Fate]]:
    leader = next(broker for broker in (1, 2, 3) if broker != cluster.controller)
    followers = tuple(broker for broker in (1, 2, 3) if broker != leader)
    topics = {cell.topic("sudden"): cell.configs for cell in cells}
    create(cluster, topics, (leader, *followers), EARLIER[0])
    with Freezer(cluster, leader) as freezer, writers(cluster, leader, "sudden", cells) as write:
        settle(write(EARLIER[1], cells))
        for cell, broker in product(cells, followers):
            wait_stored(cluster, broker, cell.topic("sudden"), [*EARLIER])
        freezer.freeze(*followers)
        not_copied = write("not copied", cells)
        for cell in cells:
            wait_stored(cluster, leader, cell.topic("sudden"), [*EARLIER, "not copied"])
        # A record is in the file before its answer is sent: the freeze must not come in between.
        settle({cell: sent for cell, sent in not_copied.items() if cell.acks != "all"})
        cluster.pause(leader)
        not_read = write("not read", cells)
        settle({cell: sent for cell, sent in not_read.items() if cell.acks == "0"})
        kill(cluster, leader, wakes=followers)
        answers = {"not copied": settle(not_copied), "not read": settle(not_read)}
    wait_led(cluster, topics, by=followers)
    cluster.start(leader)
    wait_in_sync(cluster, topics, (1, 2, 3))
    kept = read_all(cluster, topics)
    return {
        cell: (
            fate(answers["not copied"][cell], "not copied" in kept[cell.topic("sudden")]),
            fate(answers["not read"][cell], "not read" in kept[cell.topic("sudden")]),
        )
        for cell in cells
    }


# -- The second: one broker after the other stops, and the wrong one comes back first --------------


def lose_one_after_the_other(
    cluster: Cluster, cells: Sequence[Cell]
) -> dict[Cell, tuple[Fate, Fate, Fate]]:
    leader = cluster.controller  # it stays until the end
    first, second = (broker for broker in (1, 2, 3) if broker != leader)
    topics = {cell.topic("slow"): cell.configs for cell in cells}
    create(cluster, topics, (leader, second, first), EARLIER[0])
    with writers(cluster, leader, "slow", cells) as write:
        cluster.stop(first)
        wait_in_sync(cluster, topics, (leader, second))
        one_gone = settle(write("one gone", cells))
        cluster.stop(second)
        wait_in_sync(cluster, topics, (leader,))
        both_gone = settle(write("both gone", cells))
    kill(cluster, leader)
    cluster.start(first)  # it has neither write
    unclean = [cell for cell in cells if cell.unclean]
    wait_led(cluster, [cell.topic("slow") for cell in unclean], by=[first])
    wait_led(cluster, [cell.topic("slow") for cell in cells if not cell.unclean], by=[NOBODY])
    with writers(cluster, first, "slow", unclean) as write:
        stale = settle(write("stale", unclean))
    for broker in (leader, second):
        cluster.start(broker)
    wait_in_sync(cluster, topics, (1, 2, 3))
    kept = read_all(cluster, topics)

    def fates(cell: Cell) -> tuple[Fate, Fate, Fate]:
        there = kept[cell.topic("slow")]
        return (
            fate(one_gone[cell], "one gone" in there),
            fate(both_gone[cell], "both gone" in there),
            fate(stale[cell], "stale" in there) if cell.unclean else Fate.NO_LEADER,
        )

    return {cell: fates(cell) for cell in cells}


# -- Writing and reading ---------------------------------------------------------------------------


@contextmanager
def writers(
    cluster: Cluster, leader: int, disaster: str, cells: Iterable[Cell]
) -> Iterator[Callable[[str, Iterable[Cell]], Futures]]:
    """Sends a value to the topics of cells, each with its acks."""
    with ExitStack() as stack:
        producers = {
            acks: stack.enter_context(producer_at(cluster, leader, acks=acks))
            for acks in sorted({cell.acks for cell in cells})
        }

        def write(value: str, cells: Iterable[Cell]) -> Futures:
            return {
                cell: producers[cell.acks].send(cell.topic(disaster), value, partition=0)
                for cell in cells
            }

        yield write


def settle(futures: Futures) -> dict[Cell, ErrorCode | None]:
    """The answer to each write: NONE is yes, None is no answer."""
    return {cell: answer_to(sent) for cell, sent in futures.items()}


def answer_to(sent: Sent) -> ErrorCode | None:
    try:
        sent.result(PATIENCE_S)
    except SendFailed as error:
        return error.code
    return ErrorCode.NONE


def fate(answer: ErrorCode | None, is_there: bool) -> Fate:
    if answer is ErrorCode.NONE:
        return Fate.KEPT if is_there else Fate.LOST
    assert not is_there, "a write that was not acknowledged is there"
    if answer is ErrorCode.NOT_ENOUGH_REPLICAS:
        return Fate.REFUSED
    assert answer is None, answer
    return Fate.NO_ANSWER


def read_all(cluster: Cluster, topics: Iterable[str]) -> dict[str, list[str]]:
    """What consumers read when everything has returned."""
    names = list(topics)
    with penstock.Admin(cluster.bootstrap_servers) as admin:
        ends = admin.list_offsets({(name, 0): "latest" for name in names})
    records = sum(end.offset or 0 for end in ends.values())
    read: dict[str, list[str]] = {name: [] for name in names}
    with penstock.Consumer(
        names,
        bootstrap_servers=cluster.bootstrap_servers,
        from_beginning=True,
        timeout_s=PATIENCE_S,
    ) as consumer:
        for message in islice(consumer, records):
            read[message.topic].append((message.value or b"").decode())
    return read


# -- Output ----------------------------------------------------------------------------------------

HEADINGS = (
    "acks",
    "min.insync.replicas",
    "unclean election",
    "not copied",
    "not read",
    "one gone",
    "both gone",
    "stale",
)


def as_markdown(rows: Mapping[Cell, Row]) -> str:
    lines = [HEADINGS, ["---"] * len(HEADINGS), *(words_of(*item) for item in rows.items())]
    return "\n".join(f"| {' | '.join(words)} |" for words in lines)


def as_text(rows: Mapping[Cell, Row]) -> str:
    lines = [HEADINGS, *(words_of(*item) for item in rows.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(word.ljust(width) for word, width in zip(words, widths, strict=True)).rstrip()
        for words in lines
    )


def words_of(cell: Cell, row: Row) -> list[str]:
    return [cell.acks, str(cell.min_in_sync), str(cell.unclean).lower(), *row]


def parse() -> tuple[list[Cell], bool]:
    by_name = {str(cell): cell for cell in CELLS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("cells", nargs="*", metavar="CELL", help=", ".join(by_name))
    parser.add_argument("--markdown", action="store_true", help="print the table of the page alone")
    options = parser.parse_args()
    unknown = [name for name in options.cells if name not in by_name]
    if unknown:
        parser.error(f"no cell {', '.join(unknown)}: {', '.join(by_name)}")
    return [by_name[name] for name in options.cells] or CELLS, options.markdown


if __name__ == "__main__":
    main()
