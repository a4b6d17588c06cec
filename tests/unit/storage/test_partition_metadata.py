from uuid import UUID

import pytest

from penstock.model.ids import TopicId
from penstock.storage.errors import MalformedCheckpoint
from penstock.storage.partition_metadata import (
    CleanShutdown,
    MetaProperties,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_topic_id,
    decode_uuid,
    encode_clean_shutdown,
    encode_meta_properties,
    encode_topic_id,
    encode_uuid,
    read_meta_properties,
    read_topic_id,
    take_clean_shutdown,
    write_clean_shutdown,
    write_meta_properties,
    write_topic_id,
)
from penstock.testing.simulated_disk import SimulatedCrash, SimulatedDisk, every_choice

# Kafka's own reserved ids, as its documentation and tools print them.
ONE = UUID(int=1)
ONE_TEXT = "AAAAAAAAAAAAAAAAAAAAAQ"
ALL_BITS = UUID(int=2**128 - 1)
ALL_BITS_TEXT = "_" * 21 + "w"


def test_ids_are_printed_and_parsed_as_by_kafka() -> None:
    for value, text in [(ONE, ONE_TEXT), (ALL_BITS, ALL_BITS_TEXT), (UUID(int=0), "A" * 22)]:
        assert encode_uuid(value) == text
        assert decode_uuid(text) == value


@pytest.mark.parametrize(
    "text", ["", "A" * 21, "A" * 23, "A" * 21 + "+", "A" * 20 + "==", "é" * 22]
)
def test_text_that_is_not_an_id_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="22 base64"):
        decode_uuid(text)


def test_a_topic_id_is_written_and_read_as_kafka_does() -> None:
    golden = b"version: 0\ntopic_id: " + ONE_TEXT.encode()  # without a newline at the end
    assert encode_topic_id(TopicId(ONE)) == golden
    assert decode_topic_id(golden, "f") == ONE
    assert decode_topic_id(golden + b"\n", "f") == ONE


def test_a_truncated_topic_id_file_never_reads_as_an_id() -> None:
    content = encode_topic_id(TopicId(ALL_BITS))
    for length in range(len(content)):
        with pytest.raises(MalformedCheckpoint):
            decode_topic_id(content[:length], "f")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"version: x\ntopic_id: " + b"A" * 21 + b"Q", 1),
        (b"version: -1\ntopic_id: " + b"A" * 21 + b"Q", 1),
        (b"\xff", 1),
        (b"version: 0\ntopic: " + b"A" * 21 + b"Q", 2),
        (b"version: 0\ntopic_id: " + b"A" * 22, 2),  # the zero id is reserved
    ],
)
def test_a_malformed_topic_id_file_is_rejected_with_its_line(content: bytes, line: int) -> None:
    with pytest.raises(MalformedCheckpoint) as caught:
        decode_topic_id(content, "/data/t-0/partition.metadata")
    assert caught.value.line == line
    assert caught.value.path == "/data/t-0/partition.metadata"


def test_a_later_version_of_a_topic_id_file_is_read_as_by_kafka() -> None:
    assert decode_topic_id(b"version: 9\ntopic_id: " + ONE_TEXT.encode(), "f") == ONE


def test_a_topic_id_survives_a_round_trip() -> None:
    disk, folder = SimulatedDisk("/data"), "/data"
    assert read_topic_id(disk, folder) is None
    write_topic_id(disk, folder, TopicId(ALL_BITS))
    assert read_topic_id(disk, folder) == ALL_BITS
    assert list(disk.files()) == ["/data/partition.metadata"]


def test_meta_properties_of_kafka_with_zookeeper_are_read() -> None:
    content = (
        b"#\n#Mon Nov 16 01:02:03 UTC 2026\ncluster.id=vPeOCWypqUOSepEvx0cbog\n"
        b"version=0\nbroker.id=0\n"
    )
    expected = MetaProperties(version=0, node_id=0, cluster_id="vPeOCWypqUOSepEvx0cbog")
    assert decode_meta_properties(content, "f") == expected


def test_meta_properties_of_kafka_without_zookeeper_are_read() -> None:
    content = f"version=1\nnode.id=2147483647\ncluster.id=a\\=b\ndirectory.id={ONE_TEXT}\n".encode()
    expected = MetaProperties(version=1, node_id=2**31 - 1, cluster_id="a=b", directory_id=ONE)
    assert decode_meta_properties(content, "f") == expected


def test_empty_meta_properties_have_no_ids() -> None:
    assert decode_meta_properties(b"", "f") == MetaProperties()


def test_meta_properties_have_the_id_under_the_key_of_their_version() -> None:
    zookeeper = encode_meta_properties(MetaProperties(version=0, node_id=3, cluster_id="c"))
    assert zookeeper == b"#\nversion=0\nbroker.id=3\ncluster.id=c\n"
    later = MetaProperties(version=1, node_id=3, cluster_id="c", directory_id=ONE)
    assert encode_meta_properties(later) == (
        f"#\nversion=1\nnode.id=3\ncluster.id=c\ndirectory.id={ONE_TEXT}\n".encode()
    )


@pytest.mark.parametrize("cluster_id", ["a=b:c", r"back\slash", "#x!", "two words"])
def test_special_characters_of_a_cluster_id_survive_a_round_trip(cluster_id: str) -> None:
    stamp = MetaProperties(node_id=0, cluster_id=cluster_id)
    assert decode_meta_properties(encode_meta_properties(stamp), "f") == stamp


def test_a_cluster_id_cannot_inject_another_line() -> None:
    with pytest.raises(ValueError, match="printable"):
        encode_meta_properties(MetaProperties(cluster_id="a\nbroker.id=9"))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"version=2\n", 1),
        (b"version=x\n", 1),
        (b"version=0\nbroker.id=-1\n", 2),
        (b"version=0\nbroker.id=2147483648\n", 2),
        (b"version=0\nbroker\n", 2),
        (b"#\nversion=0\ndirectory.id=short\n", 3),
        (b"version=1\nnode.id=1\n", 1),
        (b"version=1\ncluster.id=c\n", 1),
    ],
)
def test_malformed_meta_properties_are_rejected_with_their_line(content: bytes, line: int) -> None:
    with pytest.raises(MalformedCheckpoint) as caught:
        decode_meta_properties(content, "/data/meta.properties")
    assert caught.value.line == line


def test_meta_properties_survive_a_round_trip() -> None:
    disk, folder = SimulatedDisk("/data"), "/data"
    assert read_meta_properties(disk, folder) is None
    stamp = MetaProperties(node_id=0, cluster_id="c", directory_id=ALL_BITS)
    write_meta_properties(disk, folder, stamp)
    assert read_meta_properties(disk, folder) == stamp
    assert list(disk.files()) == ["/data/meta.properties"]


def test_the_clean_shutdown_marker_is_kafkas_json() -> None:
    assert encode_clean_shutdown() == b'{"version":0,"brokerEpoch":-1}'
    assert encode_clean_shutdown(2**63 - 1) == b'{"version":0,"brokerEpoch":9223372036854775807}'


@pytest.mark.parametrize(
    ("content", "broker_epoch"),
    [
        (b'{"version":0,"brokerEpoch":42}', 42),
        (b'{"brokerEpoch":0,"version":7,"more":[]}', 0),
        (b"", -1),  # written by older Kafka versions
        (b"{}", -1),
        (b"[]", -1),
        (b"\xff\xfe{", -1),
        (b'{"brokerEpoch":null}', -1),
        (b'{"brokerEpoch":true}', -1),
        (b'{"brokerEpoch":"7"}', -1),
    ],
)
def test_a_clean_shutdown_marker_of_any_version_is_accepted(
    content: bytes, broker_epoch: int
) -> None:
    assert decode_clean_shutdown(content) == CleanShutdown(broker_epoch)


def test_a_clean_shutdown_marker_is_used_once() -> None:
    disk, folder = SimulatedDisk("/data"), "/data"
    assert take_clean_shutdown(disk, folder) is None
    write_clean_shutdown(disk, folder, 5)
    assert list(disk.files()) == ["/data/.kafka_cleanshutdown"]
    assert take_clean_shutdown(disk, folder) == CleanShutdown(5)
    assert disk.files() == {}
    assert take_clean_shutdown(disk, folder) is None


def test_a_removed_marker_never_returns_after_a_crash_at_any_step() -> None:
    for ordinal in range(100):
        disk = SimulatedDisk("/data")
        write_clean_shutdown(disk, "/data")
        disk.crash_before(len(disk.trace) + ordinal)
        try:
            assert take_clean_shutdown(disk, "/data") is not None
        except SimulatedCrash:
            continue
        left = [take_clean_shutdown(disk.survivor_of_power_cut(c), "/data") for c in every_choice()]
        assert left == [None] * len(left)
        assert ordinal == 2  # crashes before the unlink and before the sync of the folder
        return
    pytest.fail("taking the marker never came to an end")
