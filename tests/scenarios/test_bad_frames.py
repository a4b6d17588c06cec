"""Bytes that are no request close their connection at once, and affect no other client."""

import itertools
import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from tests.profile import scaled
from tests.scenarios.raw_client import PATIENCE_S, CutOff, framed, request_frame
from tests.scenarios.sample_bodies import Sample, bad_patches, samples
from tests.scenarios.watched_broker import MIB, WatchedBroker
from tests.unit.protocol.filled_requests import Filling, fill, list_arrays

from penstock.apis.registry import APIS
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.headers import encode_request_header
from penstock.protocol.messages import get_request_schema

pytestmark = pytest.mark.xdist_group("bad-frames")

LIMIT_BYTES = 2 * MIB
NOT_PRODUCE_BYTES = MIB
SETTINGS = {
    "socket.request.max.bytes": LIMIT_BYTES,
    "penstock.request.max.bytes": NOT_PRODUCE_BYTES,
}
API_VERSIONS_0 = encode_request_header(ApiKey.API_VERSIONS, 0, 7, "x")
PRODUCE_9 = encode_request_header(ApiKey.PRODUCE, 9, 7, "x")


def size(number: int) -> bytes:
    return struct.pack(">i", number)


# -- sizes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("claimed", [-(2**31), -2, -1, 0, LIMIT_BYTES + 1, 2**31 - 1])
def test_an_impossible_frame_size_closes_the_connection_at_once(
    broker: WatchedBroker, claimed: int
) -> None:
    with broker.connect() as client:
        client.send(size(claimed))
        assert client.is_cut_off()


def produce_frame(frame_bytes: int) -> bytes:
    """A Produce request of exactly `frame_bytes` bytes, without its size."""
    partition = {"index": 0, "records": b"\0" * (frame_bytes - 100)}
    frame = request_frame(
        ApiKey.PRODUCE,
        3,
        acks=1,
        topic_data=[{"name": "t", "partition_data": [partition]}],
        client_id="",
    )[4:]
    missing = frame_bytes - len(frame)
    partition["records"] = b"\0" * (frame_bytes - 100 + missing)
    return request_frame(
        ApiKey.PRODUCE,
        3,
        acks=1,
        topic_data=[{"name": "t", "partition_data": [partition]}],
        client_id="",
    )[4:]


def test_a_request_of_socket_request_max_bytes_is_served_and_one_byte_more_is_not(
    broker: WatchedBroker,
) -> None:
    with broker.connect() as client:
        frame = produce_frame(LIMIT_BYTES)
        assert len(frame) == LIMIT_BYTES
        client.send(framed(frame))
        response = client.read_response(ApiKey.PRODUCE, 3, 0)
        assert response.responses[0].partition_responses[0].error_code != ErrorCode.NONE
        assert client.is_served()
        client.try_send(framed(produce_frame(LIMIT_BYTES + 1)))
        assert client.is_cut_off()
    logs = broker.logs()
    assert f"Produce request of {LIMIT_BYTES + 1} bytes is above the limit" in logs
    assert "socket.request.max.bytes" in logs


@pytest.mark.parametrize("count", range(1, 8))
def test_a_frame_too_short_for_a_header_closes_the_connection(
    broker: WatchedBroker, count: int
) -> None:
    with broker.connect() as client:
        client.send(framed(bytes(count)))
        assert client.is_cut_off()


def test_memory_grows_with_received_bytes_not_with_the_claimed_size(broker: WatchedBroker) -> None:
    with ExitStack() as clients, broker.growing_less_than(20 * MIB):  # the frames claim 400 MiB
        for _ in range(200):
            client = clients.enter_context(broker.connect())
            assert client.is_served()
            client.send(size(LIMIT_BYTES) + PRODUCE_9)
        assert clients.enter_context(broker.connect()).is_served()


def test_an_incomplete_frame_waits_until_the_client_disconnects(
    broker: WatchedBroker,
) -> None:
    descriptors = broker.descriptor_count()
    with broker.connect() as client:
        client.send(size(len(API_VERSIONS_0) + 1) + API_VERSIONS_0)
        client.send_no_more()
        assert client.is_cut_off()
    broker.wait_descriptors(descriptors)


def test_bytes_after_the_body_close_the_connection(broker: WatchedBroker) -> None:
    with broker.connect() as client:
        client.send(framed(API_VERSIONS_0 + b"\0"))
        assert client.is_cut_off()


def test_bytes_after_the_claimed_size_are_another_frame(broker: WatchedBroker) -> None:
    with broker.connect() as client:
        client.send(framed(API_VERSIONS_0) + API_VERSIONS_0)  # a size of 1.2 million bytes
        client.read_response(ApiKey.API_VERSIONS, 0, 7)
        client.send_no_more()
        assert client.is_cut_off()


# -- other protocols ----------------------------------------------------------------------------

TLS_HELLO = bytes.fromhex("160301020001fc0303") + bytes(range(200))
FOREIGN = {
    "TLS": TLS_HELLO,
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
    "Redis": b"*1\r\n$4\r\nPING\r\n",
    "ZooKeeper": b"ruok\n",
}


@pytest.mark.parametrize("protocol", FOREIGN)
def test_another_protocol_closes_the_connection(broker: WatchedBroker, protocol: str) -> None:
    with broker.connect() as client:
        client.try_send(FOREIGN[protocol])
        assert client.is_cut_off()


def test_half_a_frame_leaves_no_state(broker: WatchedBroker) -> None:
    descriptors = broker.descriptor_count()
    frame = request_frame(ApiKey.METADATA, 12, topics=[{"name": "t"}])
    for cut in range(len(frame)):
        with broker.connect() as client:
            client.send(frame[:cut])
            if cut % 2:
                client.reset()
    broker.wait_descriptors(descriptors)


def test_random_bytes_close_the_connection_or_wait_for_more(broker: WatchedBroker) -> None:
    chance = random.Random(5)
    for _ in range(scaled(test=300, verify=3_000, release=30_000)):
        noise = chance.randbytes(chance.choice((1, 4, 8, 60, 1000)))
        if chance.random() < 0.5:
            noise = framed(noise)
        with broker.connect() as client:
            client.try_send(noise)
            client.send_no_more()
            assert client.is_cut_off()


# -- keys, versions and headers ----------------------------------------------------------------


@pytest.mark.parametrize("key", [-1, 1000, 32767, -32768, *sorted(set(ApiKey) - set(APIS))])
def test_an_unknown_api_key_closes_the_connection(broker: WatchedBroker, key: int) -> None:
    with broker.connect() as client:
        client.send(framed(struct.pack(">hhih", key, 0, 1, -1)))
        assert client.is_cut_off()


def unserved_versions() -> Iterator[tuple[ApiKey, int]]:
    for key, api in APIS.items():
        if key != ApiKey.API_VERSIONS:
            for version in (-1, api.versions[0] - 1, api.versions[-1] + 1, 32767, -32768):
                yield key, version


def test_an_unsupported_version_closes_the_connection(broker: WatchedBroker) -> None:
    for key, version in unserved_versions():
        with broker.connect() as client:
            client.send(framed(struct.pack(">hhih", key, version, 1, -1) + b"\0\0\0\0"))
            assert client.is_cut_off(), (key, version)


@pytest.mark.parametrize("version", [-1, -32768, 5, 99, 32767])
@pytest.mark.parametrize("body", [b"", b"\0", b"\xff" * 40], ids=["none", "tags", "nonsense"])
def test_api_versions_of_any_version_lists_the_supported_versions(
    broker: WatchedBroker, version: int, body: bytes
) -> None:
    with broker.connect() as client:
        header = struct.pack(">hhih", ApiKey.API_VERSIONS, version, 31, -1) + b"\0"
        client.send(framed(header + body))
        response = client.read_response(ApiKey.API_VERSIONS, 0, 31)
        assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
        advertised = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
        assert advertised == {key: (api.versions[0], api.versions[-1]) for key, api in APIS.items()}
        assert client.is_served()


def wrong_header_version(sample: Sample) -> bytes:
    """A frame with the wrong header version: tagged fields where there should be none, or none
    where there should be some."""
    header = sample.frame(b"")[4:]
    if sample.version >= sample.key.first_flexible_version:
        return framed(header[:-1] + sample.body)
    return framed(header + b"\0" + sample.body)


def test_the_wrong_header_version_is_never_accepted(broker: WatchedBroker) -> None:
    """The header is a byte too long or too short, so that no body can fit; an empty body might."""
    for sample in samples():
        if not sample.body:
            continue
        with broker.connect() as client:
            client.send(wrong_header_version(sample))
            assert client.is_cut_off(), (sample.key, sample.version)


# -- text --------------------------------------------------------------------------------------

NO_UTF8 = [b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80"]


@pytest.mark.parametrize("text", NO_UTF8, ids=repr)
def test_a_client_id_of_invalid_utf8_closes_the_connection(
    broker: WatchedBroker, text: bytes
) -> None:
    with broker.connect() as client:
        client.send(framed(struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, len(text)) + text))
        assert client.is_cut_off()


@pytest.mark.parametrize("length", [-2, -32768, 2, 32767])
def test_a_client_id_of_impossible_length_closes_the_connection(
    broker: WatchedBroker, length: int
) -> None:
    with broker.connect() as client:
        client.send(framed(struct.pack(">hhih", ApiKey.API_VERSIONS, 0, 1, length) + b"x"))
        assert client.is_cut_off()


def test_invalid_utf8_in_any_field_closes_the_connection(
    broker: WatchedBroker,
) -> None:
    for sample in samples():
        for field in sample.size_fields:
            if field.what != "text":
                continue
            at = field.position + (1 if field.is_flexible else 2)
            body = sample.body[:at] + b"\xff" + sample.body[at + 1 :]
            with broker.connect() as client:
                client.send(sample.frame(body))
                assert client.is_cut_off(), (sample.key, sample.version, at)


def test_clients_cannot_forge_log_lines(broker: WatchedBroker) -> None:
    forged = "x\nPLAINTEXT 10.0.0.1: all is lost\r\x1b[2J"
    batch = {"name": forged, "partition_data": [{"index": 0, "records": b"?"}]}
    frame = request_frame(ApiKey.PRODUCE, 3, acks=0, topic_data=[batch], client_id=forged)
    deadline = time.monotonic() + PATIENCE_S
    while "all is lost" not in broker.logs():
        assert time.monotonic() < deadline
        # From another address: the lines about this one are used up for the next minute.
        with broker.connect(source_host="127.0.0.9") as client:
            client.send(frame)
            assert client.is_cut_off()
    logs = broker.logs()
    assert not any(line.startswith("PLAINTEXT 10.0.0.1") for line in logs.splitlines())
    assert "\x1b" not in logs


# -- counts, lengths and tags ------------------------------------------------------------------


def test_a_bad_count_or_length_in_any_field_closes_the_connection(
    broker: WatchedBroker, record_figure: Callable[[str, int], None]
) -> None:
    tried = 0
    with broker.growing_less_than(20 * MIB):
        for sample in itertools.islice(samples(), 0, None, scaled(test=3, verify=1, release=1)):
            for field in sample.size_fields:
                for name, patch in bad_patches(field):
                    with broker.connect() as client:
                        client.send(sample.patched(field, patch))
                        assert client.is_cut_off(), (sample.key, sample.version, field, name)
                    tried += 1
    record_figure("impossible counts and lengths", tried)


def tagged(*tags: tuple[int, bytes]) -> bytes:
    """Encodes tags and values whose varints take one byte."""
    return bytes([len(tags)]) + b"".join(bytes([tag, len(value)]) + value for tag, value in tags)


FETCH_15 = next(
    sample for sample in samples() if (sample.key, sample.version) == (ApiKey.FETCH, 15)
)


def fetch_with_tags(tags: bytes) -> bytes:
    """A Fetch request with these tagged fields instead of its own, which have tags 0 and 1."""
    return FETCH_15.frame(FETCH_15.body[:-1] + tags)


REPLICA = bytes.fromhex("ffffffff ffffffffffffffff 00")


@pytest.mark.parametrize(
    "tags",
    [
        tagged((0, b"\2a"), (0, b"\2b")),
        tagged((1, REPLICA), (1, REPLICA)),
        tagged((0, b"\2a"), (1, REPLICA), (0, b"\2a")),
        tagged((0, b"\2ab")),
        tagged((0, b"\3a")),
        tagged((1, REPLICA[:-1])),
        tagged((1, REPLICA + b"\0")),
        tagged((77, b"x"), (77, b"x"))[:-1],
    ],
)
def test_malformed_tagged_fields_close_the_connection(broker: WatchedBroker, tags: bytes) -> None:
    with broker.connect() as client:
        client.send(fetch_with_tags(tags))
        assert client.is_cut_off()


@pytest.mark.parametrize("tags", [b"\0", tagged((77, b"x")), tagged((0, b"\2a"), (99, b""))])
def test_unknown_tagged_fields_are_skipped(broker: WatchedBroker, tags: bytes) -> None:
    with broker.connect() as client:
        client.send(fetch_with_tags(tags))
        client.read_frame()
        assert client.is_served()


def test_only_produce_requests_may_be_large(broker: WatchedBroker) -> None:
    """Others are refused from their first bytes: the rest never arrives."""
    for key in (ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS):
        with broker.connect() as client:
            client.send(size(NOT_PRODUCE_BYTES + 1) + key.to_bytes(2, "big"))
            assert client.is_cut_off(), key


def test_requests_full_of_the_smallest_elements_cost_their_sender_the_connection(
    broker: WatchedBroker,
) -> None:
    """And no other client waits for them, as is checked after each test (CVE-2026-111108)."""
    for key in sorted(APIS):
        version = APIS[key].versions[-1]
        schema = get_request_schema(key, version)
        header = encode_request_header(key, version, 1, "greedy")
        fillings = [Filling(path, 70_000) for path in list_arrays(schema)]
        if schema.__flexible__:
            fillings.append(Filling((), 0, tagged_fields=20_001))
        for filling in fillings:
            with broker.growing_less_than(20 * MIB), broker.connect() as client:
                client.try_send(framed(header + fill(schema, filling)))
                # Some answer with an error code instead.
                assert client.is_cut_off() or APIS[key].bounds is not None, (key, filling)


def test_frames_after_a_bad_frame_are_ignored(broker: WatchedBroker) -> None:
    create = request_frame(
        ApiKey.CREATE_TOPICS,
        5,
        topics=[{"name": "smuggled", "num_partitions": 1, "replication_factor": 1}],
    )
    with broker.connect() as client:
        client.try_send(framed(b"\xff" * 20) + create)
        assert client.is_cut_off()
    with broker.connect() as client:
        response = client.ask(
            ApiKey.METADATA, topics=[{"name": "smuggled"}], allow_auto_topic_creation=False
        )
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_requests_before_a_bad_frame_get_responses(broker: WatchedBroker) -> None:
    with broker.connect() as client:
        client.send(framed(API_VERSIONS_0) * 3 + size(-1))
        for _ in range(3):
            client.read_response(ApiKey.API_VERSIONS, 0, 7)
        with pytest.raises(CutOff):
            client.read_frame()
