"""Asks the cluster, before Spark is started, whether the topics of a pipeline are there.

Half a second instead of half a minute until a user knows of a wrong address or name.
"""

from collections.abc import Iterable

from penstock.client.errors import ClientError
from penstock.client.metadata import ClusterMetadata
from penstock.model.errors import ErrorCode
from penstock.spark.connect.connections import ClientSettings, shared_client
from penstock.spark.failures import ClusterNotReady
from penstock.spark.pipeline.spec import Pipeline, TopicTarget

_TIMEOUT_MS = 15_000
_BEING_MADE = ErrorCode.LEADER_NOT_AVAILABLE


def check_topics(pipeline: Pipeline, bootstrap: str) -> None:
    """Topics to read must be there; those to write are made where the cluster does that itself."""
    read = sorted({topic for source in pipeline.topic_sources() for topic in source.topics})
    written = sorted(_written_topics(pipeline) - set(read))
    if not (read or written or pipeline.topic_sources()):
        return
    client = shared_client(ClientSettings(bootstrap, request_timeout_ms=_TIMEOUT_MS))
    try:
        client.run(lambda each: each.connect())  # tries every address once, and no longer
        found = client.metadata(read)
        made = client.metadata(written, allow_auto_creation=True)
        missing = [*_missing(found, read), *_missing(made, written)]
    except ClientError as error:
        raise ClusterNotReady(
            f"{error}; is the broker running? `penstock up` starts one here, --bootstrap and "
            f"`bootstrap:` in {pipeline.file} say where it is"
        ) from None
    if missing:
        raise ClusterNotReady(_say_missing(pipeline, missing, bootstrap))


def _written_topics(pipeline: Pipeline) -> set[str]:
    targets = [each.target for each in pipeline.sinks]
    return {each.topic for each in targets if isinstance(each, TopicTarget)} | {
        each.dead_letter for each in pipeline.topic_sources() if each.dead_letter is not None
    }


def _missing(found: ClusterMetadata, topics: Iterable[str]) -> list[str]:
    missing = []
    for topic in topics:
        told = found.topics[topic]
        if told.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(topic)
        elif told.error not in (ErrorCode.NONE, _BEING_MADE):
            told.check()
    return missing


def _say_missing(pipeline: Pipeline, missing: list[str], bootstrap: str) -> str:
    names = ", ".join(missing)
    words = "topics {} do" if len(missing) > 1 else "topic {} does"
    return (
        f"{words.format(names)} not exist at {bootstrap}, and {pipeline.file} needs "
        f"{'them' if len(missing) > 1 else 'it'}: penstock topic create {missing[0]}"
    )
