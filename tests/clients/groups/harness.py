"""Group members in processes of their own: they join, read, commit, leave and are killed.

Every wait re-checks its condition whenever a member reports something, so none lasts longer than
needed. Only processes started here are ended, by their own handles.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from penstock.model.ids import TopicPartition

PATIENCE_S = 180.0  # a shared machine may be slow; a wait that fails says why
SESSION_MS = 20_000  # longer than every test, even on a busy machine
SHORT_SESSION_MS = 3_000  # for members that are killed or frozen until the group removes them
REPOSITORY = Path(__file__).parents[3]


class MemberFailed(Exception):
    """A member's process ended by itself; the text is the tail of its output."""


class Delivered(NamedTuple):
    time_ns: int  # by the machine's monotonic clock, which all processes share
    partition: TopicPartition
    offset: int
    value: str


class ReportedCommit(NamedTuple):
    time_ns: int
    offsets: dict[TopicPartition, int]


class Process:
    """A member's process, which another test may reuse after its member has left."""

    def __init__(self, command: Sequence[str], log: Path, changed: threading.Condition) -> None:
        self._changed = changed
        self._log = log
        self.member: Member | None = None
        self.is_ready = False
        self.has_ended = False
        with log.open("wb") as errors:
            self.popen = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=REPOSITORY,
            )
        self._reader = threading.Thread(target=self._read, name=f"read {log.name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            if not line.endswith("\n"):
                break  # it was killed in the middle of a line
            event = json.loads(line)
            with self._changed:
                if event["event"] == "ready":
                    self.is_ready = True
                else:
                    assert self.member is not None
                    self.member.note(event)
                self._changed.notify_all()
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def command(self, op: str, **fields: Any) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self.popen.stdin.flush()

    def end(self) -> None:
        """Ends the process, whatever it is doing."""
        self.popen.kill()
        self.popen.wait()
        self._reader.join()
        for stream in (self.popen.stdin, self.popen.stdout):
            assert stream is not None
            stream.close()

    def tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


class Member:
    """The events of one member, and its commands. Fields change under the harness's lock."""

    def __init__(self, harness: GroupHarness, process: Process) -> None:
        self._harness = harness
        self.process = process
        self.assignments: list[frozenset[TopicPartition]] = []  # one entry per change
        self.changed_ns = 0  # time of the last change
        self.delivered: list[Delivered] = []
        self.commits: list[ReportedCommit] = []
        self.refusals: list[str] = []
        self.fetched_offsets: list[list[tuple[int, str | None] | None]] = []
        self.has_left = False

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self.assignments[-1] if self.assignments else frozenset()

    @property
    def values(self) -> list[str]:
        return [delivered.value for delivered in self.delivered]

    def note(self, event: dict[str, Any]) -> None:
        kind, time_ns = event["event"], event["time_ns"]
        if kind == "owned":
            self.assignments.append(frozenset(TopicPartition(*pair) for pair in event["places"]))
            self.changed_ns = time_ns
        elif kind == "read":
            self.delivered += [
                Delivered(time_ns, TopicPartition(topic, partition), offset, value)
                for topic, partition, offset, value in event["records"]
            ]
        elif kind == "committed":
            offsets = {TopicPartition(topic, number): at for topic, number, at in event["offsets"]}
            self.commits.append(ReportedCommit(time_ns, offsets))
        elif kind == "refused":
            self.refusals.append(event["error"])
        elif kind == "found":
            self.fetched_offsets.append(
                [None if offset is None else tuple(offset) for offset in event["offsets"]]
            )
        else:
            assert kind == "left", event
            self.has_left = True

    def ask_to_leave(self) -> None:
        """Closes the consumer, as a regular shutdown does."""
        self.process.command("leave")

    def leave(self) -> None:
        self._harness.leave([self])

    def kill(self) -> None:
        """kill -9."""
        self._harness.forget(self)
        self.process.end()

    def freeze(self) -> None:
        self.process.popen.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.popen.send_signal(signal.SIGCONT)

    def ask_to_commit(self, metadata: str = "") -> None:
        self.process.command("commit", metadata=metadata)

    def commit(self, metadata: str = "") -> dict[TopicPartition, int]:
        """Commits everything delivered so far; returns the offsets, or {} if the commit was
        rejected."""
        answers = len(self.commits) + len(self.refusals)
        refusals = len(self.refusals)
        self.ask_to_commit(metadata)
        self._harness.wait(
            lambda: len(self.commits) + len(self.refusals) > answers, "the commit is answered"
        )
        return {} if len(self.refusals) > refusals else self.commits[-1].offsets

    def committed(self, places: Sequence[TopicPartition]) -> list[tuple[int, str | None] | None]:
        """Offset and metadata of each, as the client reports them."""
        answers = len(self.fetched_offsets)
        self.process.command("committed", places=list(places))
        self._harness.wait(
            lambda: len(self.fetched_offsets) > answers, "committed offsets are told"
        )
        return self.fetched_offsets[-1]


class Pool:
    """Idle member processes; owned by a session fixture."""

    def __init__(self, logs: Path) -> None:
        self.changed = threading.Condition()
        self._logs = logs
        self._idle: dict[tuple[str, ...], list[Process]] = {}
        self._count = 0

    def take(self, command: Sequence[str]) -> Process:
        idle = self._idle.setdefault(tuple(command), [])
        if idle:
            return idle.pop()
        self._count += 1
        return Process(command, self._logs / f"member-{self._count}.log", self.changed)

    def give_back(self, process: Process, command: Sequence[str]) -> None:
        process.member = None
        self._idle[tuple(command)].append(process)

    def close(self) -> None:
        for processes in self._idle.values():
            for process in processes:
                process.end()


class GroupHarness:
    """One test's members, all of one client."""

    def __init__(self, pool: Pool, command: Sequence[str], protocol: str) -> None:
        self._pool = pool
        self.command = command
        self.protocol = protocol
        self.members: list[Member] = []  # everyone that ever joined, in order
        self._present: list[Member] = []

    def join(
        self,
        group: str,
        *topics: str,
        pattern: str | None = None,
        assignor: str | None = None,
        instance: str | None = None,
        session_ms: int = SESSION_MS,
        commits: bool = False,
    ) -> Member:
        process = self._pool.take(self.command)
        member = Member(self, process)
        process.member = member
        self.members.append(member)
        self._present.append(member)
        process.command(
            "join",
            group=group,
            topics=topics,
            pattern=pattern,
            assignor=assignor,
            instance=instance,
            protocol=self.protocol,
            session_ms=session_ms,
            commits=commits,
        )
        return member

    def leave(self, members: Sequence[Member], *, timeout_s: float = PATIENCE_S) -> None:
        """Lets the members leave at once; then other tests can use their processes."""
        for member in members:
            member.ask_to_leave()
        self.wait(
            lambda: all(member.has_left for member in members),
            "all have left",
            timeout_s=timeout_s,
        )
        self.release()

    def release(self) -> None:
        """Returns the processes of members that have left to the pool."""
        for member in [member for member in self._present if member.has_left]:
            self.forget(member)
            self._pool.give_back(member.process, self.command)

    def forget(self, member: Member) -> None:
        self._present.remove(member)

    def wait(
        self, condition: Callable[[], bool], what: str, *, timeout_s: float = PATIENCE_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        with self._pool.changed:
            while not condition():
                left_s = deadline - time.monotonic()
                self._check_alive()
                if left_s <= 0:
                    raise AssertionError(f"not within {timeout_s} s: {what}; {self._describe()}")
                self._pool.changed.wait(min(left_s, 1.0))

    def wait_settled(
        self,
        members: Sequence[Member],
        partitions: Iterable[TopicPartition],
        *,
        timeout_s: float = PATIENCE_S,
    ) -> None:
        """Waits until every partition has one owner and every member owns some."""
        wanted = sorted(partitions)

        def is_settled() -> bool:
            owned = [member.owned for member in members]
            return all(owned) and sorted(tp for one in owned for tp in one) == wanted

        what = f"{len(members)} members share {len(wanted)} partitions"
        self.wait(is_settled, what, timeout_s=timeout_s)

    def wait_values(self, members: Sequence[Member], values: Collection[str]) -> None:
        """Waits until the members together have read all of these values."""
        wanted = set(values)

        def have_all() -> bool:
            return wanted.issubset(value for member in members for value in member.values)

        self.wait(have_all, f"{len(wanted)} records are read")

    def _check_alive(self) -> None:
        for member in self._present:
            if member.process.has_ended:
                raise MemberFailed(member.process.tail())

    def _describe(self) -> str:
        return "; ".join(
            f"member {index} owns {[str(tp) for tp in sorted(member.owned)]}, "
            f"read {len(member.delivered)}, refused {member.refusals[-1:]}"
            for index, member in enumerate(self.members)
        )

    def close(self, *, failed: bool) -> None:
        """After a failure, ends the processes without waiting for members to leave."""
        try:
            if not failed:
                self.leave(list(self._present))
        finally:
            for member in self._present:
                member.process.end()
            self._present.clear()


def python_member(client: str, bootstrap: str) -> list[str]:
    return [sys.executable, "-m", "tests.clients.groups.member", client, bootstrap]
