"""The screen of `penstock cluster top`: looks again and again, and shows what has changed."""

import asyncio
import sys
from itertools import count as count_from

from penstock.cli.cluster_top import ClusterLoad, compare, look
from penstock.cli.cluster_top_view import describe
from penstock.cli.connect import show_json
from penstock.client.cluster import ClusterClient


async def watch(
    client: ClusterClient, interval_s: float, views: int | None, *, as_json: bool
) -> None:
    """On a terminal each view replaces the one before; elsewhere they follow each other."""
    earlier = await look(client)
    for shown in count_from(1):
        await asyncio.sleep(interval_s)
        later = await look(client)
        _show(compare(earlier, later), as_json=as_json)
        earlier = later
        if shown == views:
            return


def _show(load: ClusterLoad, *, as_json: bool) -> None:
    if as_json:
        show_json(load.as_json())
        sys.stdout.flush()
        return
    if not sys.stdout.isatty():
        print(describe(load), end="\n\n", flush=True)
        return
    from rich.console import Console

    console = Console()
    console.clear()
    console.print(describe(load), markup=False, highlight=False)
