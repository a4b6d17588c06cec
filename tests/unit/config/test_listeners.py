"""Listener values."""

import pytest

from penstock.config.listeners import (
    HOST_LIMITS,
    HOST_PORT,
    LISTENERS,
    PROTOCOL_MAP,
    Listener,
    find_host_port,
    find_listener,
    get_listeners,
    get_protocol_map,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("internal://broker-1.example:19092", Listener("INTERNAL", "broker-1.example", 19092)),
        ("SSL://[::1]:0", Listener("SSL", "::1", 0)),
        ("SSL://[fe80::1]:65535", Listener("SSL", "fe80::1", 65535)),
        ("PLAINTEXT://host", None),
        ("PLAINTEXT://host:65536", None),
        ("PLAINTEXT//host:1", None),
        ("PLAINTEXT://::1:9092", None),
        ("://host:1", None),
        ("host:9092", None),
    ],
)
def test_a_listener_is_a_name_a_host_and_a_port(text: str, expected: Listener | None) -> None:
    assert find_listener(text) == expected


def test_listeners_need_names_of_their_own() -> None:
    assert LISTENERS.accepts(("A://:1", "B://:2"))
    assert not LISTENERS.accepts(("A://:1", "a://:2"))
    assert not LISTENERS.accepts(())


def test_parsing_an_invalid_listener_raises() -> None:
    with pytest.raises(ValueError, match="'nonsense' is not a listener"):
        get_listeners(("nonsense",))


def test_a_protocol_map_gives_each_name_a_protocol() -> None:
    text = "INTERNAL:PLAINTEXT, external:sasl_ssl"
    assert PROTOCOL_MAP.accepts(text)
    assert get_protocol_map(text) == {"INTERNAL": "PLAINTEXT", "EXTERNAL": "SASL_SSL"}


@pytest.mark.parametrize("text", ["", "A", "A:TLS", "A:SSL,", ":SSL", "A:SSL:B"])
def test_a_broken_protocol_map_is_refused(text: str) -> None:
    assert not PROTOCOL_MAP.accepts(text)


def test_host_limits_are_pairs_or_nothing() -> None:
    assert HOST_LIMITS.accepts("")
    assert HOST_LIMITS.accepts("10.0.0.1:100, name:5")
    assert not HOST_LIMITS.accepts("10.0.0.1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9404", ("127.0.0.1", 9404)),
        ("[::1]:0", ("::1", 0)),
        ("metrics.internal:80", ("metrics.internal", 80)),
        (":9404", None),  # every address has to be asked for
        ("9404", None),
        ("127.0.0.1:65536", None),
        ("::1:9404", None),
    ],
)
def test_an_address_names_its_host(text: str, expected: tuple[str, int] | None) -> None:
    assert find_host_port(text) == expected
    assert HOST_PORT.accepts(text) is (expected is not None)
    if expected is not None:
        assert str(find_host_port(text)) == text


def test_no_address_is_allowed() -> None:
    assert HOST_PORT.accepts("")
