"""A progress bar on stderr for long operations on a terminal. Never on stdout."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def byte_progress(
    title: str, total_bytes: int, *, wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Returns a function to call with the bytes of each step; it draws only on a terminal."""
    if not (wanted and sys.stderr.isatty()):
        yield lambda count: None
        return
    # Imported here: it takes a third of the start-up time, and scripts never see the bar.
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    # Other output must reach stdout; only on a terminal may the bar print it.
    with Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        task = progress.add_task(title, total=total_bytes)
        yield lambda count: progress.advance(task, count)
