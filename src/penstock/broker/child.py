"""The child process of `penstock.Broker()`: settings as JSON in its argument, `ready` on stdout.

Ends by itself when its parent does: the parent holds the other end of stdin.
"""

import json
import sys

from penstock.broker.node import Node
from penstock.broker.run import run_node
from penstock.config.given import Given


def main() -> None:
    settings = json.loads(sys.argv[1])
    given = Given.from_mapping(settings, where="penstock.Broker(config=...)")
    sys.exit(run_node(given, on_ready=_say_ready, report=_report, watch_stdin=True))


def _say_ready(node: Node) -> None:
    print(f"ready {node.bootstrap_servers}", flush=True)


def _report(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
