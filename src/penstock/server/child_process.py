"""The child process of `penstock.Broker()`: settings as JSON in its argument, `ready` on stdout.

Ends by itself when its parent does: the parent holds the other end of stdin.
"""

import json
import sys
from typing import TYPE_CHECKING

from penstock.config.raw_config import RawConfig
from penstock.server.lean_start import start_node

if TYPE_CHECKING:
    from penstock.server.lifecycle import BrokerLifecycle


def main() -> None:
    settings = json.loads(sys.argv[1])
    given = RawConfig.from_mapping(settings, where="penstock.Broker(config=...)")
    sys.exit(start_node(given, on_ready=_say_ready, report=_report, watch_stdin=True))


def _say_ready(node: "BrokerLifecycle") -> None:
    print(f"ready {node.bootstrap_servers}", flush=True)


def _report(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
