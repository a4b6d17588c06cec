"""A Spark Connect server that is not there costs one line, not twenty minutes."""

import socket

import pytest

from penstock.spark.session.connect_server import NoConnectServer, check_listening


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
