"""The connect string of ZooKeeper."""

import pytest

from penstock.config.given import ConfigError, Given
from penstock.config.resolve import resolve_broker
from penstock.config.zookeeper import ZooKeeperConfig


def _find(**texts: str) -> ZooKeeperConfig | None:
    named = {name.replace("_", "."): text for name, text in texts.items()}
    return ZooKeeperConfig.find_in(resolve_broker(Given.from_mapping(named, where="test")))


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
    assert _find(zookeeper_connect=connect) == config


@pytest.mark.parametrize(
    "connect",
    [":1", "a:0", "a:65536", "a:1,,b:2", "a b:1", "a:1//x", "a:1/..", "a:1/x/./y", "a:1/é", "a:x"],
)
def test_what_is_no_connect_string_is_refused(connect: str) -> None:
    with pytest.raises(ValueError, match="does not name ZooKeeper"):
        ZooKeeperConfig.parse(connect)
    with pytest.raises(ConfigError, match=r"zookeeper\.connect"):
        _find(zookeeper_connect=connect)


def test_without_a_connect_string_there_is_no_zookeeper() -> None:
    assert _find() is None
    assert _find(zookeeper_connect="") is None


def test_the_first_connection_may_take_as_long_as_the_session_unless_told_otherwise() -> None:
    texts = {"zookeeper.connect": "a:1", "zookeeper.session.timeout.ms": "6000"}
    given = Given.from_mapping(texts, where="test")
    more = Given.from_mapping({"zookeeper.connection.timeout.ms": "1000"}, where="test")
    same = ZooKeeperConfig.find_in(resolve_broker(given))
    other = ZooKeeperConfig.find_in(resolve_broker(given.overlaid_by(more)))
    assert same is not None
    assert other is not None
    assert (same.session_timeout_ms, same.connection_timeout_ms) == (6000, 6000)
    assert (other.session_timeout_ms, other.connection_timeout_ms) == (6000, 1000)


def test_addresses_are_shown_as_they_are_written() -> None:
    servers = ZooKeeperConfig.parse("a:1,[::1]:2").servers
    assert [str(server) for server in servers] == ["a:1", "[::1]:2"]
