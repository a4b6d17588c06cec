"""The options with which a pipeline uses `format("penstock")`. Pure.

Unlike the connector itself, a pipeline reads only committed records by default.
"""

from collections.abc import Mapping

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.properties import is_secret
from penstock.client.security.secret_values import is_reference, resolve_value
from penstock.spark.connect.cluster_security import security_options
from penstock.spark.errors import SparkSourceError
from penstock.spark.pipeline.spec import Options, Sink, TopicSource, TopicTarget

# Options that have their own entry in the file. Names in lower case, without `kafka.`.
RESERVED = {
    "bootstrap.servers": "use `bootstrap:` at the top of the file",
    "subscribe": "use `topic:`",
    "subscribepattern": "use `topic_pattern:`",
    "startingoffsets": "use `start:`",
    "startingtimestamp": "use `start:`",
    "includeheaders": "use `headers: true`",
    "group.id": "use `group:`",
    "publishgroupoffsets": "a pipeline publishes the offsets of its `group:` itself",
    "topic": "use `topic:`",
}
_STORE_SECRETS = ("secret", "password", "token", "account_key")
_ISOLATION = "kafka.isolation.level"


def plain_name(option: str) -> str:
    return option.lower().removeprefix("kafka.")


def source_options(source: TopicSource, bootstrap: str, *, headers: bool = False) -> dict[str, str]:
    """`headers`: read headers even if the file does not ask for them."""
    kind, topics = source.subscription
    options = {
        "kafka.bootstrap.servers": bootstrap,
        **security_options(bootstrap),
        kind: topics,
        **source.start,
        "includeHeaders": str(source.has_headers or headers).lower(),
        **values_of(source.options),
    }
    if source.group is not None:
        options["kafka.group.id"] = source.group
        options["publishGroupOffsets"] = "false"  # `group_progress` does it for all queries
    if not any(plain_name(name) == plain_name(_ISOLATION) for name in source.options):
        options[_ISOLATION] = "read_committed"
    return options


def sink_options(target: TopicTarget, sink: Sink, bootstrap: str) -> dict[str, str]:
    options = {"kafka.bootstrap.servers": bootstrap, "topic": target.topic}
    return {**options, **security_options(bootstrap), **values_of(sink.options)}


def values_of(options: Options) -> Mapping[str, str]:
    """Secrets are read here, at the last moment; SparkSourceError if one is not there."""
    return {name: _read_value(name, option.value) for name, option in options.items()}


def _read_value(name: str, value: str) -> str:
    return _resolve(name, value) if is_secret(plain_name(name)) else value


def store_values_of(options: Options) -> Mapping[str, str]:
    """The same of an object store: every value that is elsewhere is read."""
    return {
        name: _resolve(name, option.value) if is_reference(option.value) else option.value
        for name, option in options.items()
    }


def _resolve(name: str, value: str) -> str:
    try:
        return resolve_value(name, value)
    except InvalidClientConfig as error:
        raise SparkSourceError(str(error)) from None


def find_literal_secrets(options: Options) -> list[str]:
    """Names of secrets that stand in the file itself."""
    return [
        name
        for name, option in options.items()
        if is_secret(plain_name(name)) and not is_reference(option.value)
    ]


def find_literal_store_secrets(options: Options) -> list[str]:
    """The same of an object store, whose options have many names: AWS_SECRET_ACCESS_KEY."""
    return [
        name
        for name, option in options.items()
        if any(word in name.lower() for word in _STORE_SECRETS) and not is_reference(option.value)
    ]
