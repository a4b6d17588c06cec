"""What a pipeline asks of `format("penstock")`, as its options. Pure.

Unlike the connector itself, a pipeline reads committed records alone unless it is told otherwise.
"""

from collections.abc import Mapping

from penstock.spark.pipeline.spec import Options, Sink, TopicSource, TopicTarget

# What has a place of its own in the file, and where. Names in lower case, without `kafka.`.
RESERVED = {
    "bootstrap.servers": "say it as `bootstrap:` at the top of the file",
    "subscribe": "say it as `topic:`",
    "subscribepattern": "say it as `topic_pattern:`",
    "startingoffsets": "say it as `start:`",
    "startingtimestamp": "say it as `start:`",
    "includeheaders": "say it as `headers: true`",
    "group.id": "say it as `group:`",
    "publishgroupoffsets": "a pipeline publishes those of its `group:` itself",
    "topic": "say it as `topic:`",
}
_ISOLATION = "kafka.isolation.level"


def plain_name(option: str) -> str:
    return option.lower().removeprefix("kafka.")


def source_options(source: TopicSource, bootstrap: str, *, headers: bool = False) -> dict[str, str]:
    """`headers`: also those that the file does not ask for."""
    kind, topics = source.subscription
    given = {
        "kafka.bootstrap.servers": bootstrap,
        kind: topics,
        **source.start,
        "includeHeaders": str(source.has_headers or headers).lower(),
        **values_of(source.options),
    }
    if source.group is not None:
        given["kafka.group.id"] = source.group
        given["publishGroupOffsets"] = "false"  # `group_progress` knows of all queries
    if not any(plain_name(each) == plain_name(_ISOLATION) for each in source.options):
        given[_ISOLATION] = "read_committed"
    return given


def sink_options(target: TopicTarget, sink: Sink, bootstrap: str) -> dict[str, str]:
    place = {"kafka.bootstrap.servers": bootstrap, "topic": target.topic}
    return {**place, **values_of(sink.options)}


def values_of(options: Options) -> Mapping[str, str]:
    return {name: option.value for name, option in options.items()}
