"""Progress of reassignments, and Ctrl-C: a bar on a terminal, otherwise a line every two seconds on
stderr. With --json, objects on stdout.
"""

import asyncio
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import typer

from penstock.cli.balance_view import format_bytes
from penstock.cli.connect import ask_cluster, show_json
from penstock.cli.progress import byte_progress
from penstock.cli.reassignment_run import (
    ReassignmentRun,
    RunProgress,
    RunResult,
    run_throttled,
)
from penstock.client.cluster import ClusterClient
from penstock.controller.balancing.layout import PlannedReassignment

LINE_EVERY_S = 2.0
STOPPED = 130  # as a shell reports a command that Ctrl-C has ended


def run_and_show(
    bootstrap: str,
    planned: Sequence[PlannedReassignment],
    *,
    at_once: int,
    throttle: int | None,
    as_json: bool,
) -> None:
    """Ends the command with 0 only if all is done."""
    copied = sum(one.copied_bytes for one in planned)

    async def work(client: ClusterClient) -> RunResult:
        stop = asyncio.Event()
        with _stopped_by_signals(stop), _progress(copied, as_json=as_json) as show:
            run = ReassignmentRun(client, planned, at_once=at_once, stop=stop, show=show)
            return await run_throttled(client, run, throttle)

    result = ask_cluster(bootstrap, work)
    _show_result(result, as_json=as_json)
    if result.refused:
        raise typer.Exit(1)
    if not result.is_complete:
        raise typer.Exit(STOPPED)


@contextmanager
def _stopped_by_signals(stop: asyncio.Event) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def ask() -> None:
        if not stop.is_set():
            typer.echo("penstock: cancelling what is under way ...", err=True)
            stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ask)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


@contextmanager
def _progress(copied: int, *, as_json: bool) -> Iterator[Callable[[RunProgress], None]]:
    if as_json:
        yield _EveryFewSeconds(
            lambda progress: show_json({"type": "progress", **progress._asdict()})
        ).show
    elif sys.stderr.isatty() and copied:
        with byte_progress("reassigning", copied) as advance:
            shown = 0

            def show(progress: RunProgress) -> None:
                nonlocal shown
                advance(progress.copied_bytes - shown)
                shown = progress.copied_bytes

            yield show
    else:
        yield _EveryFewSeconds(lambda progress: typer.echo(line(progress), err=True)).show


class _EveryFewSeconds:
    def __init__(self, show: Callable[[RunProgress], None]) -> None:
        self._show = show
        self._shown_s = float("-inf")

    def show(self, progress: RunProgress) -> None:
        if progress.seconds - self._shown_s >= LINE_EVERY_S or progress.done == progress.total:
            self._shown_s = progress.seconds
            self._show(progress)


def line(progress: RunProgress) -> str:
    text = (
        f"{progress.done} of {progress.total} partitions done, {progress.under_way} under way, "
        f"{format_bytes(progress.copied_bytes)} of {format_bytes(progress.total_bytes)}, "
        f"{progress.seconds:.0f} s"
    )
    if not progress.absent:
        return text
    brokers = ", ".join(map(str, progress.absent))
    return f"{text}; waiting for broker {brokers}, which is not registered"


def _show_result(result: RunResult, *, as_json: bool) -> None:
    if as_json:
        show_json(
            {
                "type": "result",
                "done": [str(tp) for tp in result.done],
                "cancelled": [str(tp) for tp in result.cancelled],
                "overtaken": [str(tp) for tp in result.overtaken],
                "refused": {str(tp): why for tp, why in result.refused.items()},
                "not_begun": result.left,
                "bytes": result.copied_bytes,
                "seconds": round(result.seconds, 3),
            }
        )
        return
    for tp, why in sorted(result.refused.items()):
        typer.echo(f"penstock: {tp}: {why}", err=True)
    print(
        f"{len(result.done)} partitions reassigned, {format_bytes(result.copied_bytes)} copied in "
        f"{result.seconds:.0f} s"
    )
    if result.cancelled:
        print(
            f"{len(result.cancelled)} reassignments were under way: cancelled, with their replicas "
            "as before"
        )
    if result.overtaken:
        print(
            f"stopped, because somebody else cancelled or changed {len(result.overtaken)} "
            "reassignments"
        )
    if result.left:
        print(f"{result.left} were not begun; run the command again to continue")
