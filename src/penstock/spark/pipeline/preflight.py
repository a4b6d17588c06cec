"""Checks that a pipeline's topics exist before Spark starts, so that a wrong address or topic name
fails in half a second instead of half a minute.
"""

from collections.abc import Iterable

from penstock.client.metadata import ClusterMetadata
from penstock.model.errors import ErrorCode
from penstock.spark.connect.reachable import connect, explaining_unreachable
from penstock.spark.failures import ClusterNotReady
from penstock.spark.pipeline.spec import (
    Pipeline,
    PipelineView,
    TopicSource,
    TopicTarget,
    branch_sinks,
)

_BEING_CREATED = ErrorCode.LEADER_NOT_AVAILABLE


def check_topics(pipeline: Pipeline, bootstrap: str, *, read_only: bool = False) -> None:
    """Topics to read must exist; topics to write are auto-created where the cluster allows it.
    `read_only`: nothing is written."""
    read = sorted({topic for source in pipeline.topic_sources() for topic in source.topics})
    written = [] if read_only else sorted(_written_topics(pipeline) - set(read))
    if not (read or written or pipeline.topic_sources()):
        return
    address_source = f"--bootstrap and `bootstrap:` in {pipeline.file} name"
    client = connect(bootstrap, address_source)
    with explaining_unreachable(address_source):
        read_metadata = client.metadata(read)
        written_metadata = client.metadata(written, allow_auto_creation=True)
        missing = [*_missing(read_metadata, read), *_missing(written_metadata, written)]
    if missing:
        raise ClusterNotReady(_describe_missing(pipeline, missing, bootstrap))


def _written_topics(pipeline: Pipeline) -> set[str]:
    sinks = [part for sink in pipeline.sinks for part in branch_sinks(sink) or [sink]]
    targets = [sink.target for sink in sinks]
    relations: list[TopicSource | PipelineView] = [*pipeline.topic_sources(), *pipeline.views]
    return {target.topic for target in targets if isinstance(target, TopicTarget)} | {
        relation.dead_letter for relation in relations if relation.dead_letter is not None
    }


def _missing(metadata: ClusterMetadata, names: Iterable[str]) -> list[str]:
    missing = []
    for name in names:
        topic = metadata.topics[name]
        if topic.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(name)
        elif topic.error not in (ErrorCode.NONE, _BEING_CREATED):
            topic.check()
    return missing


def _describe_missing(pipeline: Pipeline, missing: list[str], bootstrap: str) -> str:
    names = ", ".join(missing)
    words = "topics {} do" if len(missing) > 1 else "topic {} does"
    return (
        f"{words.format(names)} not exist at {bootstrap}, and {pipeline.file} needs "
        f"{'them' if len(missing) > 1 else 'it'}: penstock topic create {missing[0]}"
    )
