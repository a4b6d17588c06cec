"""A Spark Connect server that is not there costs one line, not twenty minutes."""

import socket
import subprocess
import sys

import pytest

from penstock.spark.session.connect_server import NoConnectServer, check_listening

TIMEOUT_S = 180
# In a process of its own: PySpark goes on asking in the background until it ends.
STOPPED = """
import sys, threading
from penstock.spark.session.connect_server import NoConnectServer, connect_session

stop = threading.Event()
threading.Timer(0.5, stop.set).start()
try:
    connect_session(sys.argv[1], {}, stop=stop, answer_s=3600)
except NoConnectServer as error:
    print(error)
"""


def test_address_without_a_server_is_named_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert check_listening(f"sc://127.0.0.1:{port}/;token=x") == ("127.0.0.1", port)
    with pytest.raises(NoConnectServer, match=rf"listens at 127.0.0.1:{port} \(.*correct --remote"):
        check_listening(f"sc://127.0.0.1:{port}")


@pytest.mark.parametrize("remote", ["spark://host", "sc://", "sc://host:port", "sc://host/path"])
def test_invalid_url_is_named(remote: str) -> None:
    with pytest.raises(NoConnectServer, match="--remote"):
        check_listening(remote)


def test_server_that_never_answers_is_not_waited_for_after_a_stop() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = subprocess.run(
            [sys.executable, "-c", STOPPED, f"sc://{address}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
        )
    assert done.stdout == (
        f"stopped before the Spark Connect server at {address} answered; nothing was run\n"
    )
