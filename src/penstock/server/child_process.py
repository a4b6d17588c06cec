"""The child process of `penstock.Broker()`: config as JSON in its argument, `ready` on stdout.

It stops when its parent ends, because the parent holds the other end of its stdin.
"""

import json
import sys
from typing import TYPE_CHECKING

from penstock.config.raw_config import RawConfig
from penstock.server.lean_start import start_broker

if TYPE_CHECKING:
    from penstock.server.lifecycle import BrokerLifecycle


def main() -> None:
    config = json.loads(sys.argv[1])
    raw_config = RawConfig.from_mapping(config, where="penstock.Broker(config=...)")
    sys.exit(start_broker(raw_config, on_ready=_print_ready, watch_stdin=True))


def _print_ready(broker: "BrokerLifecycle") -> None:
    print(f"ready {broker.bootstrap_servers}", flush=True)


if __name__ == "__main__":
    main()
