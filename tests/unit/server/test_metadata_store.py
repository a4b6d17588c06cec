"""Which metadata store a broker's config selects."""

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.config.zookeeper import ZooKeeperConfig
from penstock.server.metadata_store import find_zookeeper


def _find(**texts: str) -> ZooKeeperConfig | None:
    named = {name.replace("_", "."): text for name, text in texts.items()}
    return find_zookeeper(resolve_broker(RawConfig.from_mapping(named, where="test")))


def test_without_a_connect_string_there_is_no_zookeeper() -> None:
    assert _find() is None
    assert _find(zookeeper_connect="") is None


def test_the_config_names_servers_chroot_and_timeouts() -> None:
    config = _find(zookeeper_connect="a:1,b:2/kafka")
    assert config == ZooKeeperConfig.parse("a:1,b:2/kafka", session_timeout_ms=18_000)


def test_the_connection_timeout_defaults_to_the_session_timeout() -> None:
    same = _find(zookeeper_connect="a:1", zookeeper_session_timeout_ms="6000")
    other = _find(
        zookeeper_connect="a:1",
        zookeeper_session_timeout_ms="6000",
        zookeeper_connection_timeout_ms="1000",
    )
    assert same is not None
    assert other is not None
    assert (same.session_timeout_ms, same.connection_timeout_ms) == (6000, 6000)
    assert (other.session_timeout_ms, other.connection_timeout_ms) == (6000, 1000)
