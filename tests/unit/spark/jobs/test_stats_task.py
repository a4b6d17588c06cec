"""Keys of ranges, joined by the tasks that they fall to."""

from collections import Counter, defaultdict

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.jobs.stats_task import COUNTED, JOINED, join_keys

Row = tuple[int, int, bytes, int]  # topic, partition, key, records
ROWS = st.lists(
    st.tuples(
        st.integers(0, 1), st.integers(0, 2), st.sampled_from([b"", b"a", b"b"]), st.integers(1, 9)
    )
)
TYPES = {"int": pa.int32(), "bigint": pa.int64(), "binary": pa.binary()}
SCHEMA = pa.schema([(name, TYPES[kind]) for name, kind in map(str.split, COUNTED.split(","))])


def batch(rows: list[Row]) -> pa.RecordBatch:
    fields = [
        {"topic": topic, "partition": partition, "task": 0, "key": key, "records": records}
        for topic, partition, key, records in rows
    ]
    return pa.RecordBatch.from_pylist(fields, SCHEMA)


@given(parts=st.lists(ROWS, max_size=3), most=st.integers(1, 3))
def test_keys_are_joined_as_if_counted_one_by_one(parts: list[list[Row]], most: int) -> None:
    joined = [row for rows in join_keys(map(batch, parts), most) for row in rows.to_pylist()]
    records: Counter[tuple[int, bytes]] = Counter()
    partitions: defaultdict[tuple[int, bytes], set[int]] = defaultdict(set)
    for topic, partition, key, count in (row for part in parts for row in part):
        records[topic, key] += count
        partitions[topic, key].add(partition)
    of_topics = Counter(topic for topic, _ in records)
    of_partitions = Counter(
        (topic, partition) for (topic, _), some in partitions.items() for partition in some
    )
    numbers = {(row["topic"], row["partition"]): row["keys"] for row in joined if row["keys"]}
    whole = {(topic, None): count for topic, count in of_topics.items()}
    assert numbers == dict(of_partitions) | whole
    for topic in of_topics:
        best = sorted((-n, key) for (of, key), n in records.items() if of == topic)
        top = [row for row in joined if row["key"] is not None and row["topic"] == topic]
        assert sorted((-row["records"], row["key"]) for row in top) == best[:most]
        assert all(row["partitions"] == len(partitions[topic, row["key"]]) for row in top)


def test_rows_of_ranges_stay_as_they_are() -> None:
    sent = {"topic": 1, "partition": 2, "task": 3, "counts": b"counts"}
    (rows,) = join_keys([pa.RecordBatch.from_pylist([sent], SCHEMA)], 10)
    assert rows.schema.names == [column.split()[0] for column in JOINED.split(",")]
    (row,) = rows.to_pylist()
    assert {name: value for name, value in row.items() if value is not None} == sent
