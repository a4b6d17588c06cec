"""A broker with TLS, as clients see it: every library, two listeners, and certificates replaced."""

import asyncio
import socket
import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]
from confluent_kafka import Consumer, KafkaException, Producer
from tests.scenarios.up_process import UpProcess, penstock_up, try_up

from penstock.testing.certificates import CertificateAuthority, CertificateFiles

with warnings.catch_warnings():  # it loads its schemas with a function that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka  # type: ignore[import-untyped]

pytestmark = [
    pytest.mark.xdist_group("tls"),
    pytest.mark.filterwarnings("ignore:read_text is deprecated:DeprecationWarning"),
]
_WAIT_S = 120
RoundTrip = Callable[[str, CertificateFiles], bytes]


class Keys:
    """An authority, and the files of a broker and of a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        self.broker = self.authority.issue("broker").write(folder, "broker")
        self.client = self.authority.issue("client").write(folder, "client")

    def settings(self, **changes: str) -> list[str]:
        values = {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker.pem_keystore),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.broker.authority),
            "penstock.ssl.reload.interval.ms": "100",
            **changes,
        }
        return [part for name, value in values.items() for part in ("--set", f"{name}={value}")]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@contextmanager
def _tls_broker(folder: Path, keys: Keys, **changes: str) -> Iterator[UpProcess]:
    """`up` reaches it as clients do, so the process is ready when it says so."""
    settings = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        **changes,
    }
    with penstock_up("--data", str(folder / "data"), *keys.settings(**settings)) as process:
        yield process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, keys: Keys) -> Iterator[UpProcess]:
    with _tls_broker(tmp_path_factory.mktemp("broker"), keys) as process:
        yield process


def _librdkafka(servers: str, files: CertificateFiles) -> dict[str, str]:
    return {
        "bootstrap.servers": servers,
        "security.protocol": "ssl",
        "ssl.ca.location": str(files.authority),
        "ssl.certificate.location": str(files.certificate),
        "ssl.key.location": str(files.key),
    }


def _confluent_round_trip(servers: str, files: CertificateFiles) -> bytes:
    producer = Producer(_librdkafka(servers, files))
    producer.produce("of-confluent", b"confluent")
    assert producer.flush(_WAIT_S) == 0
    consumer = Consumer(
        {**_librdkafka(servers, files), "group.id": "c", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["of-confluent"])
        message = consumer.poll(_WAIT_S)
        assert message is not None
        if message.error() is not None:
            raise KafkaException(message.error())
        value = message.value()
        assert value is not None
        return value
    finally:
        consumer.close()


def _kafka_python_round_trip(servers: str, files: CertificateFiles) -> bytes:
    options = {
        "bootstrap_servers": servers,
        "security_protocol": "SSL",
        "ssl_cafile": str(files.authority),
        "ssl_certfile": str(files.certificate),
        "ssl_keyfile": str(files.key),
    }
    producer = kafka.KafkaProducer(**options)
    producer.send("of-kafka-python", b"kafka-python").get(_WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "of-kafka-python",
        **options,
        auto_offset_reset="earliest",
        consumer_timeout_ms=_WAIT_S * 1000,
    )
    try:
        value: bytes = next(consumer).value
        return value
    finally:
        consumer.close()


def _aiokafka_round_trip(servers: str, files: CertificateFiles) -> bytes:
    async def round_trip() -> bytes:
        context = ssl.create_default_context(cafile=files.authority)
        context.load_cert_chain(files.certificate, files.key)
        options = {
            "bootstrap_servers": servers,
            "security_protocol": "SSL",
            "ssl_context": context,
        }
        async with AIOKafkaProducer(**options) as producer:
            await producer.send_and_wait("of-aiokafka", b"aiokafka")
        async with AIOKafkaConsumer(
            "of-aiokafka", **options, auto_offset_reset="earliest"
        ) as consumer:
            value: bytes = (await consumer.getone()).value
            return value

    async def bounded() -> bytes:
        return await asyncio.wait_for(round_trip(), _WAIT_S)

    return asyncio.run(bounded())


@pytest.mark.parametrize(
    ("round_trip", "expected"),
    [
        (_confluent_round_trip, b"confluent"),
        (_kafka_python_round_trip, b"kafka-python"),
        (_aiokafka_round_trip, b"aiokafka"),
    ],
)
def test_clients_write_and_read_with_certificates(
    broker: UpProcess, keys: Keys, round_trip: RoundTrip, expected: bytes
) -> None:
    assert round_trip(broker.bootstrap_servers, keys.client) == expected


def test_each_listener_has_its_protocol_and_its_keys(tmp_path: Path, keys: Keys) -> None:
    other = CertificateAuthority("other").issue("outside").write(tmp_path, "outside")
    changes = {
        "listeners": "PLAINTEXT://127.0.0.1:0,IN://127.0.0.1:0,OUT://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SSL,OUT:SSL",
        "security.inter.broker.protocol": "PLAINTEXT",
        "listener.name.out.ssl.keystore.location": str(other.pem_keystore),
        "listener.name.out.ssl.client.auth": "none",
    }
    with _tls_broker(tmp_path, keys, **changes) as broker:
        plain, inside, outside = (
            _split(address) for address in broker.bootstrap_servers.split(",")
        )
        assert _read_issuer(inside, keys.client.authority, keys.client) == "Penstock test authority"
        assert _read_issuer(outside, other.authority) == "other"
        with pytest.raises(ssl.SSLError):
            _read_issuer(outside, keys.client.authority)
        with socket.create_connection(plain) as sock:
            sock.sendall(b"\0\0\0\x0a" + b"\0\x12\0\0" + b"\0\0\0\x01" + b"\xff\xff")
            assert sock.recv(4) != b""


def test_replaced_certificates_are_served_without_a_restart(tmp_path: Path) -> None:
    """Open connections stay; what does not fit together is not taken over."""
    keys = Keys(tmp_path / "keys")
    with _tls_broker(tmp_path, keys, **{"ssl.client.auth": "none"}) as broker:
        address = _split(broker.bootstrap_servers)
        first = _read_serial(address, keys)
        with _connected(address, keys.client.authority, None) as open_before:
            _replace(keys.broker.pem_keystore, keys.authority.issue("broker").key_pem())
            _wait_until(lambda: _has_logged(broker, "the old certificate stays in use"))
            assert _read_serial(address, keys) == first
            keys.authority.issue("broker").write(keys.folder, "broker")
            _wait_until(lambda: _read_serial(address, keys) != first)
            open_before.sendall(b"\0\0\0\x0a" + b"\0\x12\0\0" + b"\0\0\0\x01" + b"\xff\xff")
            assert len(open_before.recv(4)) == 4
        assert _has_logged(broker, "new connections use the new certificate")
        second = _read_serial(address, keys)
        keys.authority.issue("another").write(keys.folder, "broker")
        _wait_until(lambda: _has_logged(broker, "another name (CN=another)"))
        assert _read_serial(address, keys) == second


def test_without_what_tls_needs_the_broker_does_not_start(tmp_path: Path, keys: Keys) -> None:
    data = tmp_path / "data"
    refused = try_up(
        "--data",
        str(data),
        *keys.settings(
            **{
                "listeners": "SSL://127.0.0.1:0",
                "security.inter.broker.protocol": "SSL",
                "ssl.keystore.location": "/nowhere",
            }
        ),
    )
    assert refused.returncode == 1
    assert "listener SSL: ssl.keystore.location /nowhere cannot be read" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not data.exists()


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


@contextmanager
def _connected(
    address: tuple[str, int], authority: Path, files: CertificateFiles | None
) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=authority)
    if files is not None:
        context.load_cert_chain(files.certificate, files.key)
    with (
        socket.create_connection(address, timeout=_WAIT_S) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        yield tls


def _read_issuer(
    address: tuple[str, int], authority: Path, files: CertificateFiles | None = None
) -> str:
    with _connected(address, authority, files) as tls:
        certificate = tls.getpeercert()
    assert certificate is not None
    return str(certificate["issuer"]).split("'")[3]  # of the first attribute, its name


def _read_serial(address: tuple[str, int], keys: Keys) -> object:
    with _connected(address, keys.client.authority, None) as tls:
        certificate = tls.getpeercert()
    assert certificate is not None
    return certificate["serialNumber"]


def _replace(path: Path, content: bytes) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_bytes(content)
    temporary.replace(path)


def _has_logged(broker: UpProcess, text: str) -> bool:
    return any(text in line for line in broker.logs)


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)
