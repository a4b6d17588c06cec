"""Which addresses a broker binds, registers and advertises."""

import socket

from penstock.config.effective_config import resolve_broker
from penstock.config.listeners import Listener
from penstock.config.raw_config import RawConfig
from penstock.model.cluster import Endpoint
from penstock.server.addresses import (
    Addresses,
    bound_addresses,
    inter_broker_listener,
    listeners_of,
)


def addresses_of(**overrides: str) -> Addresses:
    texts = {name.replace("_", "."): text for name, text in overrides.items()}
    config = resolve_broker(RawConfig.from_mapping(texts, where="test"))
    bound = [listener._replace(port=listener.port or 40123) for listener in listeners_of(config)]
    return bound_addresses(config, bound)


def test_nothing_is_advertised_unless_configured() -> None:
    addresses = addresses_of(listeners="PLAINTEXT://127.0.0.1:0")
    assert addresses.advertised == {}
    assert addresses.bound == (Endpoint("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 40123),)
    assert addresses.bootstrap_servers == "127.0.0.1:40123"


def test_configured_addresses_are_advertised_and_registered() -> None:
    addresses = addresses_of(
        listeners="PLAINTEXT://0.0.0.0:9092", advertised_listeners="PLAINTEXT://logs.example:19092"
    )
    endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "logs.example", 19092)
    assert addresses.advertised == {"PLAINTEXT": endpoint}
    assert addresses.registered == (endpoint,)
    assert addresses.bootstrap_servers == "127.0.0.1:9092"


def test_an_advertised_port_of_zero_is_the_bound_one() -> None:
    addresses = addresses_of(
        listeners="PLAINTEXT://127.0.0.1:0", advertised_listeners="PLAINTEXT://localhost:0"
    )
    assert addresses.advertised["PLAINTEXT"].port == 40123


def test_a_listener_on_every_interface_is_registered_by_host_name() -> None:
    addresses = addresses_of(listeners="PLAINTEXT://:9092")
    assert [endpoint.host for endpoint in addresses.registered] == [socket.gethostname()]


def test_several_listeners_keep_their_names_and_protocols() -> None:
    addresses = addresses_of(
        listeners="INSIDE://127.0.0.1:1,OUTSIDE://[::1]:2",
        listener_security_protocol_map="INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        inter_broker_listener_name="INSIDE",
    )
    assert [(endpoint.listener, endpoint.protocol) for endpoint in addresses.bound] == [
        ("INSIDE", "PLAINTEXT"),
        ("OUTSIDE", "PLAINTEXT"),
    ]
    assert addresses.bootstrap_servers == "127.0.0.1:1,[::1]:2"


def test_the_start_up_log_shows_advertised_addresses_and_how_to_change_them() -> None:
    unset = addresses_of(listeners="PLAINTEXT://127.0.0.1:9092").describe()
    assert "the address that each client connected to" in unset
    assert "--set advertised.listeners=PLAINTEXT://HOST:PORT" in unset
    advertised = addresses_of(
        listeners="PLAINTEXT://127.0.0.1:9092", advertised_listeners="PLAINTEXT://h:1"
    ).describe()
    assert "it advertises h:1" in advertised


def test_listeners_are_read_from_the_config() -> None:
    config = resolve_broker(RawConfig.from_mapping({"listeners": "PLAINTEXT://h:1"}, where="test"))
    assert list(listeners_of(config)) == [Listener("PLAINTEXT", "h", 1)]


def test_the_inter_broker_listener_is_found_by_name_or_by_protocol() -> None:
    def listener_of(overrides: dict[str, str]) -> str:
        return inter_broker_listener(
            resolve_broker(RawConfig.from_mapping(overrides, where="test"))
        )

    assert listener_of({}) == "PLAINTEXT"
    named = {
        "listeners": "PLAINTEXT://:9092,inner://:9093",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,inner:PLAINTEXT",
        "inter.broker.listener.name": "inner",
    }
    assert listener_of(named) == "INNER"
