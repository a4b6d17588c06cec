"""Runs one broker in this process until a signal, or until its parent process ends.

Only the edge: event loop, signals, exit code. `lifecycle` runs the broker itself.
"""

import asyncio
import faulthandler
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

from penstock.config.raw_config import ConfigError, RawConfig
from penstock.logs.broker_loggers import BrokerLoggers, write_to_stderr
from penstock.logs.event_logger import EventLogger
from penstock.model.stop_requests import StopRequests
from penstock.server.lifecycle import BrokerFailed, BrokerLifecycle, BrokerStranded, StartRefused

OnReady = Callable[[BrokerLifecycle], None]

REFUSED = 1  # it cannot start here; the message says why
MISUSED = 2  # its config is invalid
FAILED = 3  # it ended because of a failure


def run_broker(raw_config: RawConfig, *, on_ready: OnReady, watch_stdin: bool = False) -> int:
    """Returns the process's exit code. `watch_stdin`: stop at the end of stdin, as on SIGTERM."""
    with suppress(RuntimeError, AttributeError, OSError, ValueError):  # there is no stderr
        faulthandler.enable()  # a crash of the interpreter prints the stacks of all threads
    _raise_file_limit()
    write_to_stderr(*log_settings(raw_config))
    loggers = BrokerLoggers()
    logger = loggers.get("server")
    try:
        with asyncio.Runner(loop_factory=find_loop_factory()) as runner:
            runner.run(_run(raw_config, on_ready, loggers, watch_stdin=watch_stdin))
    except (StartRefused, ConfigError) as refusal:
        logger.error("start_refused", str(refusal))
        return MISUSED if isinstance(refusal, ConfigError) else REFUSED
    except BrokerStranded as stranded:
        logger.error("broker_stranded", f"stopped, because it cannot continue: {stranded}")
        return FAILED
    except BrokerFailed as failed:
        # With the whole traceback; the next start recovers.
        logger.error(
            "broker_failed",
            "stopped by an unexpected failure:\n" + "".join(traceback.format_exception(failed)),
        )
        return FAILED
    return 0


def log_settings(raw_config: RawConfig) -> tuple[str, str]:
    """Format and level, as they are written: a config that is refused is logged, too."""
    texts = {name: raw.text for name, raw in raw_config.values.items()}
    return texts.get("logging.format", "text"), texts.get("logging.level", "INFO")


def _raise_file_limit() -> None:
    """Raise it to the hard limit, as Java does, because the usual 1,024 are few for a broker."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems report an infinite limit that cannot be set
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def find_loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop if it is installed, because it is faster with many small requests."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _run(
    raw_config: RawConfig, on_ready: OnReady, loggers: BrokerLoggers, *, watch_stdin: bool
) -> None:
    stop, requests = asyncio.Event(), StopRequests()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop, requests, loggers.get("server"))
    if watch_stdin:
        loop.add_reader(sys.stdin.fileno(), _on_stdin, stop, loop)
    broker = BrokerLifecycle(raw_config, loggers=loggers)
    await broker.run(on_ready=on_ready, stop=stop)


def _on_signal(stop: asyncio.Event, requests: StopRequests, logger: EventLogger) -> None:
    if requests.is_urgent(time.monotonic()):
        logger.warning(
            "second_stop_signal",
            "second stop signal: exiting at once; the next start recovers the logs",
        )
        os._exit(130)
    stop.set()


def _on_stdin(stop: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        stop.set()
