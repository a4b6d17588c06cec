"""Validation and conversion of batches by topic config, and their cost."""

import tracemalloc
from dataclasses import replace

import pytest
from tests.unit.storage.engine.cases import NOW_MS, batch_of, claiming, of_producer

from penstock.config.log_config import LogConfig
from penstock.protocol.batch import HEADER, compute_crc, is_crc_valid, read_header
from penstock.protocol.compression import Codec, compress
from penstock.protocol.records import Record, iter_records
from penstock.protocol.varint import encode_varint
from penstock.storage.engine import AppendOrigin
from penstock.storage.errors import CorruptRecords, InvalidRecords, InvalidTimestamp, RecordTooLarge
from penstock.storage.log_validator import prepare, validate_batch

MIB = 1024 * 1024
COMPACT = frozenset({"compact"})
COMPACTED = LogConfig(cleanup_policy=COMPACT)


def take(batch: bytes | bytearray, config: LogConfig = COMPACTED) -> bytes:
    """Return the batch as it would be stored."""
    view = memoryview(bytearray(batch))
    validate_batch(view, AppendOrigin.CLIENT, "orders-3")
    stored, _ = prepare(
        view,
        read_header(view),
        config,
        now_ms=NOW_MS,
        origin=AppendOrigin.CLIENT,
        tp="orders-3",
    )
    return bytes(stored)


def records_of(batch: bytes | bytearray) -> list[Record]:
    return list(iter_records(batch))


# -- a topic's own codec -----------------------------------------------------------------------


@pytest.mark.parametrize("sent", Codec)
@pytest.mark.parametrize("wanted", Codec)
def test_a_topics_own_codec_changes_the_bytes_and_nothing_else(sent: Codec, wanted: Codec) -> None:
    name = "uncompressed" if wanted is Codec.NONE else wanted.name.lower()
    batch = of_producer(7, 20, codec=sent, times=[NOW_MS + index for index in range(20)])
    stored = take(batch, LogConfig(compression_type=name))
    before, after = read_header(batch), read_header(stored)
    assert after.codec == wanted
    assert is_crc_valid(stored, 0, len(stored))
    assert records_of(stored) == records_of(batch)
    same = {"batch_length": 0, "crc": 0, "attributes": 0}
    assert after._replace(**same) == before._replace(**same)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_invalid_records_are_not_recompressed(codec: Codec) -> None:
    noise = b"\xff" * 100 if codec is Codec.NONE else compress(codec, b"\xff" * 100)
    with pytest.raises(InvalidRecords):
        take(claiming(2, noise, codec), LogConfig(compression_type="gzip"))


# -- limits of decompression -------------------------------------------------------------------


def test_a_batch_that_is_too_large_is_not_decompressed() -> None:
    with pytest.raises(RecordTooLarge):
        take(claiming(2, b"\xff" * MIB), LogConfig(cleanup_policy=COMPACT, max_message_bytes=1000))


BOMB_BYTES = {Codec.GZIP: 800 * MIB, Codec.LZ4: 200 * MIB, Codec.ZSTD: 4096 * MIB}


@pytest.mark.parametrize("config", [COMPACTED, LogConfig(compression_type="snappy")])
@pytest.mark.parametrize("codec", list(BOMB_BYTES))
def test_a_decompression_bomb_takes_only_a_few_megabytes(codec: Codec, config: LogConfig) -> None:
    payload = compress(codec, bytes(4 * MIB)) * (BOMB_BYTES[codec] // (4 * MIB))
    assert len(payload) < MIB
    bomb = claiming(1, payload, codec)
    tracemalloc.start()
    with pytest.raises(InvalidRecords):
        take(bomb, config)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 * MIB


def one_record(value_bytes: int) -> bytes:
    head = b"\0\0\0\2k" + encode_varint(value_bytes)
    return encode_varint(len(head) + value_bytes + 1) + head + bytes(value_bytes + 1)


def test_highly_compressed_batches_are_not_rejected_as_bombs() -> None:
    honest = claiming(1, compress(Codec.LZ4, one_record(15 * MIB)), Codec.LZ4)
    assert take(honest) == honest


def test_a_larger_max_message_bytes_allows_larger_decompressed_batches() -> None:
    large = claiming(1, compress(Codec.LZ4, one_record(40 * MIB)), Codec.LZ4)
    with pytest.raises(InvalidRecords, match="send smaller batches"):
        take(large)
    assert take(large, LogConfig(cleanup_policy=COMPACT, max_message_bytes=3 * MIB)) == large


@pytest.mark.parametrize("config", [COMPACTED, LogConfig(compression_type="zstd")])
def test_penstock_max_decompressed_bytes_applies_wherever_a_batch_is_decompressed(
    config: LogConfig,
) -> None:
    batch = claiming(1, compress(Codec.LZ4, one_record(20 * MIB)), Codec.LZ4)
    config = replace(config, max_message_bytes=MIB)
    with pytest.raises(InvalidRecords, match=f"more than the {16 * MIB} allowed"):
        take(batch, replace(config, penstock_max_decompressed_bytes=1))
    more = replace(config, penstock_max_decompressed_bytes=21 * MIB)
    assert read_header(take(batch, more)).record_count == 1


def test_a_compacted_topic_rejects_batches_that_compaction_cannot_read() -> None:
    batch = claiming(1, compress(Codec.ZSTD, one_record(33 * MIB)), Codec.ZSTD)
    more = LogConfig(penstock_max_decompressed_bytes=40 * MIB, compression_type="lz4")
    assert read_header(take(batch, more)).record_count == 1
    with pytest.raises(InvalidRecords, match=f"more than the {32 * MIB} allowed"):
        take(batch, replace(more, cleanup_policy=COMPACT))


# -- error codes -------------------------------------------------------------------------------


def altered(**fields: int) -> bytearray:
    """Change header fields and keep the old CRC: damage in transit."""
    batch = batch_of(2)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    return batch


def resealed(batch: bytearray) -> bytearray:
    """Change header fields and set a valid CRC: an error of the client."""
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(crc=compute_crc(batch)))
    return batch


@pytest.mark.parametrize(
    "fields",
    [
        {"record_count": 3},
        {"record_count": -1},
        {"last_offset_delta": -1},
        {"attributes": 7},
        {"attributes": 0x80},
        {"producer_id": 5},
        {"base_timestamp": -2},
    ],
)
def test_damage_is_corrupt_records_and_a_clients_error_is_invalid_records(
    fields: dict[str, int],
) -> None:
    """CORRUPT_MESSAGE makes clients retry, INVALID_RECORD does not."""
    with pytest.raises(CorruptRecords, match="CRC"):
        take(altered(**fields))
    with pytest.raises((InvalidRecords, InvalidTimestamp)):
        take(resealed(altered(**fields)))


def test_lengths_are_checked_before_the_crc() -> None:
    size = len(batch_of(2))
    with pytest.raises(CorruptRecords, match="too short"):
        take(altered(batch_length=48))
    with pytest.raises(InvalidRecords, match=f"{size} were sent"):
        take(altered(batch_length=size))
    with pytest.raises(CorruptRecords, match="CRC"):
        take(altered(batch_length=size - 13))
    with pytest.raises(InvalidRecords, match="follow the batch"):
        take(batch_of(2) + b"\0")
