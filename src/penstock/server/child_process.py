"""The child process of `penstock.Broker()`: config as a line of JSON on stdin, `ready` on stdout.

It stops when its parent ends, because the parent holds the other end of its stdin. The config is no
argument, because every user of the machine can read the arguments of a process, and it has secrets.
"""

import json
import sys
from typing import TYPE_CHECKING

from penstock.config.raw_config import RawConfig
from penstock.server.lean_start import start_broker

if TYPE_CHECKING:
    from penstock.server.lifecycle import BrokerLifecycle


def main() -> None:
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        sys.exit(0)  # the parent has ended already
    raw_config = RawConfig.from_mapping(json.loads(line), where="penstock.Broker(config=...)")
    sys.exit(start_broker(raw_config, on_ready=_print_ready, watch_stdin=True))


def _print_ready(broker: "BrokerLifecycle") -> None:
    print(f"ready {broker.bootstrap_servers}", flush=True)


if __name__ == "__main__":
    main()
