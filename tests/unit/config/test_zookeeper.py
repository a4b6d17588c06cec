"""The connect string of ZooKeeper."""

import pytest

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import ConfigError, RawConfig
from penstock.config.zookeeper import ZooKeeperConfig


def _resolve(connect: str) -> None:
    resolve_broker(RawConfig.from_mapping({"zookeeper.connect": connect}, where="test"))


@pytest.mark.parametrize(
    ("connect", "servers", "chroot"),
    [
        ("localhost", [("localhost", 2181)], ""),
        ("a:1,b:2 , c", [("a", 1), ("b", 2), ("c", 2181)], ""),
        ("a:1/kafka", [("a", 1)], "/kafka"),
        ("a:1,b:2/one/t.w_o-3/", [("a", 1), ("b", 2)], "/one/t.w_o-3"),
        ("a:1/", [("a", 1)], ""),
        ("[::1]:2182,127.0.0.1", [("::1", 2182), ("127.0.0.1", 2181)], ""),
    ],
)
def test_a_connect_string_names_servers_and_a_path(
    connect: str, servers: list[tuple[str, int]], chroot: str
) -> None:
    config = ZooKeeperConfig.parse(connect)
    assert (list(config.servers), config.chroot) == (servers, chroot)
    _resolve(connect)


@pytest.mark.parametrize(
    "connect",
    [":1", "a:0", "a:65536", "a:1,,b:2", "a b:1", "a:1//x", "a:1/..", "a:1/x/./y", "a:1/é", "a:x"],
)
def test_an_invalid_connect_string_is_rejected(connect: str) -> None:
    with pytest.raises(ValueError, match="does not name ZooKeeper"):
        ZooKeeperConfig.parse(connect)
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        _resolve(connect)


def test_addresses_are_shown_as_they_are_written() -> None:
    servers = ZooKeeperConfig.parse("a:1,[::1]:2").servers
    assert [str(server) for server in servers] == ["a:1", "[::1]:2"]
