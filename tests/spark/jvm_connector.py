"""Spark's own Kafka connector, resolved once with Maven into `.cache/kafka/spark-connector-*/`.

Only a test dependency, to compare with. Invariant: an existing cache directory is complete. It
omits what PySpark's wheel contains anyway (Scala, Hadoop, codecs), so that no jar is there twice.
`python -m tests.spark.jvm_connector` fills it ahead of a test run.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.interop.kafka_jars import (
    CACHE_ROOT,
    RESOLVE_TIMEOUT_S,
    RESOLVER,
    KafkaUnavailableError,
    Say,
    filled_then_renamed,
    get_program,
    locked,
    run_tool,
    short_hash,
)

# The newest on Maven Central in November 2026: there is none for Spark 4.3, in which it runs here.
CONNECTOR_VERSION = "4.2.0"
CONNECTOR = "spark-sql-kafka-0-10_2.13"
# Only matters for secured clusters; Maven Central has no newer version either.
TOKENS_VERSION = "4.1.0-preview1"
TOKENS = "spark-token-provider-kafka-0-10_2.13"
# The connector and what the wheel does not contain, in the versions the connector depends on.
ARTIFACTS = (CONNECTOR, TOKENS, "kafka-clients", "commons-pool2")
# The connector's pom names a mirror with this id; ours replaces it.
_CENTRAL = ("gcs-maven-central-mirror", "https://repo.maven.apache.org/maven2")
_IN_THE_WHEEL = ("org.apache.hadoop", "org.scala-lang", "org.scala-lang.modules", "org.slf4j")


def resolve_jvm_connector(say: Say, *, cache_root: Path = CACHE_ROOT) -> Path:
    """The directory of its jars, downloaded on the first call on a machine."""
    maven = get_program("mvn")
    home = cache_root / f"spark-connector-{CONNECTOR_VERSION}"
    home.mkdir(parents=True, exist_ok=True)
    pom = _pom_text()
    jars = home / f"jars-{short_hash(pom)}"
    with locked(home / ".lock"):
        if not jars.is_dir():
            say(f"Spark's Kafka connector {CONNECTOR_VERSION}: fetching jars with Maven, once ...")
            (home / "pom.xml").write_text(pom)
            with filled_then_renamed(jars) as target:
                _run_maven(maven, home / "pom.xml", target)
    return jars


def class_path(jars: Path) -> str:
    """The value for `spark.driver.extraClassPath`."""
    return f"{jars}/*"


def _run_maven(maven: str, pom: Path, target: Path) -> None:
    command = [maven, "--batch-mode", "--no-transfer-progress", "--strict-checksums"]
    command += ["--file", str(pom), RESOLVER, f"-DoutputDirectory={target}"]
    command += [f"-DincludeArtifactIds={','.join(ARTIFACTS)}"]
    output = run_tool(command, "Maven did not answer", timeout_s=RESOLVE_TIMEOUT_S)
    missing = [name for name in ARTIFACTS if not any(target.glob(f"{name}-*.jar"))]
    if missing:
        raise KafkaUnavailableError(f"Maven answered but copied no {missing}: {output[-400:]}")


def _pom_text() -> str:
    identity, url = _CENTRAL
    dependencies = _dependency(CONNECTOR, CONNECTOR_VERSION) + _dependency(TOKENS, TOKENS_VERSION)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0">'
        "<modelVersion>4.0.0</modelVersion><groupId>penstock</groupId>"
        "<artifactId>spark-connector-for-tests</artifactId><version>1</version>"
        "<packaging>pom</packaging>"
        f"<repositories><repository><id>{identity}</id><url>{url}</url></repository></repositories>"
        f"<dependencies>{dependencies}</dependencies></project>\n"
    )


def _dependency(artifact: str, version: str) -> str:
    exclusions = "".join(
        f"<exclusion><groupId>{group}</groupId><artifactId>*</artifactId></exclusion>"
        for group in _IN_THE_WHEEL
    )
    return (
        f"<dependency><groupId>org.apache.spark</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version><exclusions>{exclusions}</exclusions></dependency>"
    )


if __name__ == "__main__":
    try:
        print(resolve_jvm_connector(lambda text: print(text, file=sys.stderr, flush=True)))
    except KafkaUnavailableError as error:
        sys.exit(f"skipped: {error}")
