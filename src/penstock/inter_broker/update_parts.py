"""Splits a large UpdateMetadata or StopReplica into parts, and joins what a broker receives.

So one limit holds for all requests: the metadata of a large cluster as one request would take
seconds to decode. Invariant: the joined request is the one that was split, and nothing of it is
applied before.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from penstock.model.cluster import (
    ControllerEpoch,
    ControllerRequest,
    ControllerRequestBody,
    LeaderAndIsrRequest,
    PartitionState,
    RequestPart,
    StopReplicaRequest,
    TopicState,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.request_budget import STRUCT_ELEMENTS

PART_ELEMENTS = 20_000  # a third of what a request may have: 1,400 partitions of 3 replicas
MAX_ELEMENTS = 4_000_000  # of all parts together: 280,000 partitions of 3 replicas
_CHARACTERS = 100  # that weigh as much as an element


class _Item(NamedTuple):
    """An entry of one of the fields; for a topic, some of its partitions."""

    field: str
    value: Any
    weight: int


def split_request(request: ControllerRequest) -> Iterator[ControllerRequest]:
    """Lazily: the sender encodes a part when it has sent those before."""
    bodies = _bodies(request.body)
    body = next(bodies)
    for index in count():
        following = next(bodies, None)
        part = RequestPart(index, is_last=following is None)  # of a single one: the whole
        yield request._replace(body=body, part=part)
        if following is None:
            return
        body = following


class UpdateParts:
    """The parts of the one request that is being received. Owned by the request handler."""

    def __init__(self) -> None:
        self._first: ControllerRequest | None = None  # None: no request is partly received
        self._bodies: list[ControllerRequestBody] = []
        self._elements = 0

    def join(self, request: ControllerRequest) -> ControllerRequest | None:
        """The whole request with its last part; None: parts are missing. A Refusal makes the sender
        begin again."""
        part, body = request.part, request.body
        if part == RequestPart():
            return request
        if isinstance(body, LeaderAndIsrRequest):
            raise Refusal(ErrorCode.INVALID_REQUEST, "LeaderAndIsr does not come in parts")
        self._check_order(request, body.controller_epoch)
        self._bodies.append(body)
        self._elements += _weigh(body)
        if self._elements > MAX_ELEMENTS:
            self._clear()
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"the metadata of a cluster has at most {MAX_ELEMENTS} elements",
            )
        if not part.is_last:
            return None
        whole = request._replace(body=_join_bodies(self._bodies), part=RequestPart())
        self._clear()
        return whole

    def _check_order(self, request: ControllerRequest, epoch: ControllerEpoch) -> None:
        first = self._first
        if first is not None and epoch < first.body.controller_epoch:
            raise Refusal(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"a request of controller epoch {epoch} came after one of epoch "
                f"{first.body.controller_epoch}; that controller was replaced and must resign",
            )
        if request.part.position == 0:
            self._clear()
            self._first = request
        elif first is None or not _is_next(first, len(self._bodies), request):
            self._clear()
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                f"part {request.part.position} of request {request.number} came out of order",
            )

    def _clear(self) -> None:
        self._first = None
        self._bodies = []
        self._elements = 0


def _is_next(first: ControllerRequest, received: int, request: ControllerRequest) -> bool:
    return (
        request.number == first.number
        and request.broker_epoch == first.broker_epoch
        and request.body.controller_epoch == first.body.controller_epoch
        and request.part.position == received
        and type(request.body) is type(first.body)
    )


def _bodies(body: ControllerRequestBody) -> Iterator[ControllerRequestBody]:
    if isinstance(body, StopReplicaRequest) and _weigh(body) > PART_ELEMENTS:
        size = PART_ELEMENTS // STRUCT_ELEMENTS
        for start in range(0, len(body.partitions), size):
            yield replace(body, partitions=body.partitions[start : start + size])
    elif isinstance(body, UpdateMetadataRequest) and not _is_small(body):
        yield from _split(body)
    else:
        yield body


def _weigh(body: ControllerRequestBody) -> int:
    if isinstance(body, UpdateMetadataRequest):
        return sum(item.weight for item in _items(body))
    return STRUCT_ELEMENTS * len(body.partitions)


def _is_small(update: UpdateMetadataRequest) -> bool:
    weight = 0
    for item in _items(update):
        weight += item.weight
        if weight > PART_ELEMENTS:
            return False
    return True


def _split(update: UpdateMetadataRequest) -> Iterator[UpdateMetadataRequest]:
    """The first has the brokers and their configs, and says which fields there are."""
    part = replace(
        update,
        topics=(),
        deleted_topics=(),
        failed=None if update.failed is None else {},
        group_configs=None if update.group_configs is None else {},
    )
    items: list[_Item] = []
    weight = 0
    for item in _items(update):
        if items and weight + item.weight > PART_ELEMENTS:
            yield _fill(part, items)
            part = UpdateMetadataRequest(
                controller_id=update.controller_id,
                controller_epoch=update.controller_epoch,
                is_full=update.is_full,
            )
            items, weight = [], 0
        items.append(item)
        weight += item.weight
    yield _fill(part, items)


def _items(update: UpdateMetadataRequest) -> Iterator[_Item]:
    for topic in update.topics:
        yield from _topic_items(topic)
    for name in update.deleted_topics:
        yield _Item("deleted_topics", name, STRUCT_ELEMENTS + len(name) // _CHARACTERS)
    for tp, brokers in (update.failed or {}).items():
        weight = STRUCT_ELEMENTS * (1 + len(brokers)) + len(tp.topic) // _CHARACTERS
        yield _Item("failed", (tp, brokers), weight)
    for group, configs in (update.group_configs or {}).items():
        weight = STRUCT_ELEMENTS + len(group) // _CHARACTERS + _weigh_configs(configs)
        yield _Item("group_configs", (group, configs), weight)


def _topic_items(topic: TopicState) -> Iterator[_Item]:
    """The first has the configs; every item has the name and the id."""
    weight = STRUCT_ELEMENTS + len(topic.name) // _CHARACTERS + _weigh_configs(topic.configs)
    configs = topic.configs
    states: list[PartitionState] = []
    for state in topic.partitions:
        state_weight = _weigh_state(state)
        if states and weight + state_weight > PART_ELEMENTS:
            yield _Item("topics", _some(topic, states, configs), weight)
            configs, states, weight = {}, [], STRUCT_ELEMENTS
        states.append(state)
        weight += state_weight
    yield _Item("topics", _some(topic, states, configs), weight)


def _some(
    topic: TopicState, states: list[PartitionState], configs: Mapping[str, str]
) -> TopicState:
    return replace(topic, partitions=tuple(states), configs=configs)


def _weigh_state(state: PartitionState) -> int:
    listed = map(len, (state.replicas, state.in_sync, state.adding, state.removing))
    return STRUCT_ELEMENTS * (1 + sum(listed))


def _weigh_configs(configs: Mapping[str, str]) -> int:
    characters = sum(len(name) + len(value) for name, value in configs.items())
    return STRUCT_ELEMENTS * len(configs) + characters // _CHARACTERS


def _fill(part: UpdateMetadataRequest, items: Iterable[_Item]) -> UpdateMetadataRequest:
    by_field: dict[str, list[Any]] = {}
    for item in items:
        by_field.setdefault(item.field, []).append(item.value)
    values: dict[str, Any] = {}
    for field, entries in by_field.items():
        is_mapping = field in ("failed", "group_configs")
        values[field] = dict(entries) if is_mapping else tuple(entries)
    return replace(part, **values)


def _join_bodies(bodies: list[ControllerRequestBody]) -> ControllerRequestBody:
    """All are of one type."""
    first = bodies[0]
    if isinstance(first, UpdateMetadataRequest):
        return _join([body for body in bodies if isinstance(body, UpdateMetadataRequest)])
    stops = [body for body in bodies if isinstance(body, StopReplicaRequest)]
    return replace(stops[0], partitions=tuple(tp for stop in stops for tp in stop.partitions))


def _join(bodies: list[UpdateMetadataRequest]) -> UpdateMetadataRequest:
    first = bodies[0]
    failed = dict(first.failed or {})
    group_configs = dict(first.group_configs or {})
    for body in bodies[1:]:
        failed.update(body.failed or {})
        group_configs.update(body.group_configs or {})
    return replace(
        first,
        topics=tuple(_join_topics(topic for body in bodies for topic in body.topics)),
        deleted_topics=tuple(name for body in bodies for name in body.deleted_topics),
        failed=None if first.failed is None else failed,
        group_configs=None if first.group_configs is None else group_configs,
    )


def _join_topics(topics: Iterable[TopicState]) -> Iterator[TopicState]:
    """Parts of a topic follow each other."""
    joined: TopicState | None = None
    states: list[PartitionState] = []
    for topic in topics:
        if joined is not None and topic.topic_id == joined.topic_id and topic.name == joined.name:
            states += topic.partitions
            continue
        if joined is not None:
            yield replace(joined, partitions=tuple(states))
        joined, states = topic, list(topic.partitions)
    if joined is not None:
        yield replace(joined, partitions=tuple(states))
