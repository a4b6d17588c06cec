import pytest

from penstock.client.address import Address, parse_address, parse_bootstrap
from penstock.client.errors import InvalidAddress


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9092", Address("127.0.0.1", 9092)),
        ("broker-1.example.com:1", Address("broker-1.example.com", 1)),
        ("[::1]:9092", Address("::1", 9092)),
        (" localhost:65535 ", Address("localhost", 65535)),
    ],
)
def test_an_address_survives_a_round_trip(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":9092", "host:0", "host:65536", "::1:9092", "a b:1", "h:1/x"]
)
def test_an_invalid_address_is_rejected_with_an_example(text: str) -> None:
    with pytest.raises(InvalidAddress, match=r"HOST:PORT.*127\.0\.0\.1:9092"):
        parse_address(text)


def test_several_addresses_keep_their_order_without_duplicates() -> None:
    expected = (Address("b", 2), Address("a", 1))
    assert parse_bootstrap("b:2, a:1,b:2,") == expected
    assert parse_bootstrap(["b:2", "a:1"]) == expected


@pytest.mark.parametrize("bootstrap", ["", " , ", []])
def test_no_address_at_all_is_refused(bootstrap: str | list[str]) -> None:
    with pytest.raises(InvalidAddress, match="no bootstrap address"):
        parse_bootstrap(bootstrap)
