"""DescribeLogDirs (key 35), versions 1-4: the replicas in each log directory of this broker.

Version 3 added an error for the whole request; before it, a client that is not authorized gets an
empty response. Version 4 added the size of the volume and its free space. Replicas are never moved
between directories, so there are no future replicas.
"""

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.access import allows_cluster
from penstock.apis.api import Api, Request
from penstock.apis.response_shapes import Shape, response_shape
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.security.authorizer import AclOperation
from penstock.storage.engine import EngineStatistics, LogStatistics

if TYPE_CHECKING:
    from penstock.apis.services import Services


class Volume(NamedTuple):
    total_bytes: int
    usable_bytes: int


_UNKNOWN_VOLUME = Volume(-1, -1)


async def answer(request: Request, services: "Services") -> Any:
    shape = response_shape(request.key, request.version)
    if not allows_cluster(request, services, AclOperation.DESCRIBE):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return shape(throttle_time=timedelta(), error_code=code, results=())
    statistics = services.engine.statistics()
    paths = _log_directories(services)
    # Off the loop: a hanging disk must delay this response only.
    volumes = await asyncio.to_thread(_measure, paths)
    wanted = _wanted(request)
    results = tuple(
        _directory(shape["results"], path, volumes[path], statistics, wanted) for path in paths
    )
    return shape(throttle_time=timedelta(), error_code=ErrorCode.NONE, results=results)


API = Api(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    versions=range(1, 5),
    answer=answer,
)


def _log_directories(services: "Services") -> list[str]:
    return [os.path.abspath(path) for path in services.config().log_dirs]


def _measure(paths: Iterable[str]) -> dict[str, Volume]:
    return {path: _find_volume(path) for path in paths}


def _find_volume(path: str) -> Volume:
    try:
        volume = os.statvfs(path)
    except OSError:  # the engine's failed directories say why
        return _UNKNOWN_VOLUME
    return Volume(volume.f_blocks * volume.f_frsize, volume.f_bavail * volume.f_frsize)


def _wanted(request: Request) -> Collection[TopicPartition] | None:
    """None: all of them."""
    if request.message.topics is None:
        return None
    return {
        TopicPartition(topic.topic, partition)
        for topic in request.message.topics
        for partition in topic.partitions
    }


def _directory(
    shape: Shape,
    path: str,
    volume: Volume,
    statistics: EngineStatistics,
    wanted: Collection[TopicPartition] | None,
) -> Any:
    failed = {os.path.abspath(directory) for directory in statistics.failed_directories}
    if path in failed:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        return shape(error_code=code, log_dir=path, topics=())
    topics = _by_topic(
        log
        for log in statistics.logs
        if _lies_in(path, log) and (wanted is None or log.tp in wanted)
    )
    return shape(
        error_code=ErrorCode.NONE,
        log_dir=path,
        topics=tuple(_topic(shape["topics"], name, logs) for name, logs in topics.items()),
        **volume._asdict(),
    )


def _lies_in(path: str, log: LogStatistics) -> bool:
    return os.path.abspath(os.path.dirname(log.directory)) == path


def _by_topic(logs: Iterable[LogStatistics]) -> Mapping[str, list[LogStatistics]]:
    topics: dict[str, list[LogStatistics]] = {}
    for log in sorted(logs, key=lambda log: log.tp):
        topics.setdefault(log.tp.topic, []).append(log)
    return topics


def _topic(shape: Shape, name: str, logs: Iterable[LogStatistics]) -> Any:
    return shape(
        name=name,
        partitions=tuple(
            shape["partitions"](
                partition_index=log.tp.partition,
                partition_size=log.size_bytes,
                # How far the log is behind the high watermark; 0 on a leader.
                offset_lag=max(log.high_watermark - log.log_end_offset, 0),
                is_future_key=False,
            )
            for log in logs
        ),
    )
