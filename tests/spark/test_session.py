"""The session preset, in a process of its own: a session's settings are those of its first use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from penstock.config.java import JavaHome
from penstock.spark.class_archive import find_archive
from penstock.spark.session import LOW_LATENCY, preset

JOB = """
import json, sys
from pathlib import Path
from penstock.config.java import JavaHome
from penstock.spark.class_archive import find_archive
from penstock.spark.session import session

def where(batches):
    import pyarrow, pyspark
    for batch in batches:
        yield pyarrow.record_batch({"file": [pyspark.__file__] * batch.num_rows})

home = Path(sys.argv[1])
spark = session("preset", master="local[2]", config={"spark.ui.enabled": "false",
    "spark.local.dir": str(home)})
spark.sparkContext.setLogLevel("OFF")
(home / "in").mkdir()
(home / "in" / "lines.json").write_text('{"word": "a"}\\n{"word": "b"}\\n{"word": "a"}\\n')
lines = spark.readStream.schema("word STRING").json(str(home / "in"))
upper = lines.groupBy("word").count().mapInArrow(lambda batches: batches, "word STRING, n LONG")
query = (
    upper.writeStream.format("memory").queryName("counted").outputMode("complete")
    .option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
)
assert query.awaitTermination(60)
print(json.dumps({
    "settings": dict(spark.sparkContext.getConf().getAll()),
    "counted": sorted(map(list, spark.table("counted").collect())),
    "maps": Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text(),
    "pyspark": spark.range(1).mapInArrow(where, "file STRING").collect()[0][0],
}))
spark.stop()
"""


def test_a_local_session_has_as_many_shuffle_partitions_as_cores() -> None:
    assert preset("local[3]")["spark.sql.shuffle.partitions"] == "3"
    assert preset("local")["spark.sql.shuffle.partitions"] == "1"
    assert preset("local[4,2]")["spark.sql.shuffle.partitions"] == "4"
    assert int(preset("local[*]")["spark.sql.shuffle.partitions"]) >= 1


def test_a_cluster_decides_for_itself() -> None:
    assert preset("spark://host:7077") == dict(LOW_LATENCY)


def test_what_the_user_says_wins_over_the_preset() -> None:
    said = {"spark.sql.shuffle.partitions": "7", "spark.python.unix.domain.socket.enabled": "false"}
    assert preset("local[2]", said).items() >= said.items()


def test_streaming_with_python_workers_runs_with_the_preset(java: JavaHome, tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    told = json.loads(result.stdout)
    assert told["counted"] == [["a", 2], ["b", 1]]
    assert ".zip" not in told["pyspark"]  # workers need not compile it again
    # The archive of its classes, which the long form of the tests has made.
    assert ("/spark-classes-" in told["maps"]) is (find_archive(java) is not None)
    assert told["settings"].items() >= preset("local[2]").items()
    checkpoint = [path.name for path in (tmp_path / "checkpoint").rglob("*")]
    assert "commits" in checkpoint
    assert [name for name in checkpoint if name.endswith(".crc")] == []
