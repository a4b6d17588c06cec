"""`penstock pipeline prepare`: builds a class archive so that Spark starts faster."""

from penstock.cli.connect import fail
from penstock.cli.pipeline_progress import note

PREPARE_HELP = """Halve Spark's start-up time on this machine; takes about a minute, once.

Stores the classes that Spark loads in an archive of about 160 MB beside the installed packages,
which Java maps at start-up. Every Spark that Penstock starts uses it; another PySpark or Java
version needs its own.

\b
Examples:
  penstock pipeline prepare
"""

_TOPIC = "training"


def prepare() -> None:
    from penstock.config.java import JavaMissing
    from penstock.spark.pipeline.failures import SparkMissing
    from penstock.spark.pipeline.launch import check_spark
    from penstock.spark.session.class_archive import ArchiveFailed, make_archive
    from penstock.testing.embedded_broker import Broker

    try:
        check_spark()
        with Broker() as broker:
            _fill(broker.bootstrap_servers)
            archive = make_archive(broker.bootstrap_servers, _TOPIC, note)
    except (ArchiveFailed, JavaMissing, SparkMissing) as error:
        fail(str(error), 1)
    print(f"wrote {archive}, {archive.stat().st_size >> 20} MiB; Penstock now starts Spark with it")


def _fill(bootstrap: str) -> None:
    from penstock.client.producer import Producer

    with Producer(bootstrap) as producer:
        for number in range(100):
            producer.send(_TOPIC, b'{"n": %d, "name": "a"}' % number)
