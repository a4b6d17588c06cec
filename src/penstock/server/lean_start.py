"""Starts a broker that has a process of its own, with as few imports as possible.

Imports nothing of the broker itself until `start_broker` runs.
"""

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.config.raw_config import RawConfig
    from penstock.server.lifecycle import BrokerLifecycle

# A request of 200 partitions allocates 1,500 objects, all freed by reference counting: the default
# threshold would run the collector twice per request for nothing.
_YOUNG_OBJECTS = 10_000


def start_broker(
    raw_config: "RawConfig",
    *,
    on_ready: "Callable[[BrokerLifecycle], None]",
    watch_stdin: bool = False,
) -> int:
    """Run `run_broker` and return its exit code.

    The garbage collector is off until the broker serves, because scanning the modules again and
    again takes a tenth of the start.
    """
    gc.disable()
    from penstock.server.run import run_broker

    def serve(broker: "BrokerLifecycle") -> None:
        gc.freeze()  # no later collection scans the modules
        gc.set_threshold(_YOUNG_OBJECTS)
        gc.enable()
        on_ready(broker)

    return run_broker(raw_config, on_ready=serve, watch_stdin=watch_stdin)
