"""Configs that a tool or a person has written into their znodes: checked and adopted. Pure.

What cannot be read or is invalid is refused: the resource keeps the configs that were in force, and
its znode is left alone. Nothing is written: the store has the configs already.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from penstock.controller.config_change import (
    ConfigBasis,
    check_broker_configs,
    check_group_configs,
    without_refusal,
)
from penstock.controller.config_resources import ClientEntity, find_entity_problem, find_resource
from penstock.controller.controller_requests import update_metadata_requests
from penstock.controller.interface import ConfigScope
from penstock.controller.internal_topics import is_internal
from penstock.controller.refusals import check_topic_configs
from penstock.controller.state import AddressedRequest, ClusterState, ControllerDecision
from penstock.controller.stored_configs import StoredConfigs, describe_unreadable
from penstock.controller.znodes import (
    ALL_BROKERS,
    broker_config_path,
    topic_config_path,
)
from penstock.model.cluster import TopicState
from penstock.model.errors import ErrorCode, Refusal

KEPT = "the previous configs stay in force until it is corrected"


class RefusedConfigs(NamedTuple):
    path: str
    message: str  # with the path


class KnownConfigs(Protocol):
    """What this broker knows from the last controller. A metadata cache is one."""

    @property
    def broker_configs(self) -> Mapping[str, Mapping[str, str]]: ...
    @property
    def group_configs(self) -> Mapping[str, Mapping[str, str]]: ...
    def find_topic(self, name: str) -> TopicState | None: ...


@dataclass(frozen=True)
class NothingKnown:
    broker_configs: Mapping[str, Mapping[str, str]]
    group_configs: Mapping[str, Mapping[str, str]]

    def find_topic(self, name: str) -> TopicState | None:
        return None


NOTHING_KNOWN = NothingKnown({}, {})


def adopt_configs(
    state: ClusterState, read: Mapping[str, StoredConfigs], basis: ConfigBasis
) -> tuple[ControllerDecision, list[RefusedConfigs]]:
    """`read`: config znodes by path, as they are now."""
    edits = _Edits(state, basis)
    for path, stored in read.items():
        edits.take(path, stored)
    after = edits.state
    with_brokers = after.broker_configs is not state.broker_configs
    with_groups = after.group_configs is not state.group_configs
    requests: tuple[AddressedRequest, ...] = ()
    if edits.topics or with_brokers or with_groups:
        requests = update_metadata_requests(
            after,
            topics=edits.topics,
            with_broker_configs=with_brokers,
            with_group_configs=with_groups,
        )
    return ControllerDecision(state=after, requests=requests), edits.refused


class _Edits:
    """The state with the configs adopted so far."""

    def __init__(self, state: ClusterState, basis: ConfigBasis) -> None:
        self.topics: dict[str, TopicState] = {}  # changed
        self.refused: list[RefusedConfigs] = []
        self._state = state
        self._basis = basis
        self._checks = TopicChecks(basis)

    @property
    def state(self) -> ClusterState:
        return self._state.with_topics(self.topics.values())

    def take(self, path: str, stored: StoredConfigs) -> None:
        resource = find_resource(path)
        if resource is None:
            return
        if resource.scope is ConfigScope.TOPIC and self._state.find_topic(resource.name) is None:
            self._state = without_refusal(
                self._state, path
            )  # nothing is to be said of a deleted topic
            return
        try:
            if stored.problem:
                raise Refusal(ErrorCode.INVALID_CONFIG, stored.problem)
            match resource.scope:
                case ConfigScope.TOPIC:
                    self._take_topic(resource.name, stored.configs)
                case ConfigScope.BROKER:
                    self._take_broker(resource.name, stored.configs)
                case ConfigScope.GROUP:
                    self._take_group(resource.name, stored.configs)
                case None:
                    self._take_client(resource.entity, stored.configs)
        except Refusal as refusal:
            message = refusal.message or refusal.code.message
            text = message if path in message else f"{path}: {message}"
            self.refused.append(RefusedConfigs(path, f"{text}; {KEPT}"))
            self._state = refuse(self._state, [path])
        else:
            self._state = without_refusal(self._state, path)
            if resource.scope is ConfigScope.TOPIC and stored.configs is None:
                absent = self._state.absent_configs | {path}
                self._state = replace(self._state, absent_configs=absent)

    def _take_topic(self, name: str, configs: Mapping[str, str] | None) -> None:
        topic = self._state.topics[name]
        if topic.configs != (configs or {}):
            self._checks.check(name, configs or {})
            self.topics[name] = replace(topic, configs=dict(configs or {}))

    def _take_broker(self, name: str, configs: Mapping[str, str] | None) -> None:
        before = self._state.broker_configs
        if before.get(name) == configs:
            return
        if configs is not None:
            if name and not name.isdecimal():
                raise Refusal(
                    ErrorCode.INVALID_CONFIG, f"its name is neither a broker id nor {ALL_BROKERS}"
                )
            check_broker_configs(self._state, name, configs, self._basis)
        self._state = replace(self._state, broker_configs=_with(before, name, configs))

    def _take_group(self, name: str, configs: Mapping[str, str] | None) -> None:
        before = self._state.group_configs
        if before.get(name) == configs:
            return
        if configs is not None:
            check_group_configs(self._state, name, configs, self._basis)
        self._state = replace(self._state, group_configs=_with(before, name, configs))

    def _take_client(self, entity: ClientEntity, configs: Mapping[str, str] | None) -> None:
        before = self._state.client_configs
        if not configs:
            if entity in before:
                others = {name: own for name, own in before.items() if name != entity}
                self._state = replace(self._state, client_configs=others)
            return
        problem = find_entity_problem(entity, configs)
        if problem is not None:
            raise Refusal(ErrorCode.INVALID_CONFIG, problem)
        if before.get(entity) != configs:
            self._state = replace(self._state, client_configs={**before, entity: configs})


class TopicChecks:
    """Checks topics' configs; many topics have the same ones, which are checked once."""

    def __init__(self, basis: ConfigBasis) -> None:
        self._broker_config = basis.broker_config
        self._valid: set[frozenset[tuple[str, str]]] = set()

    def check(self, topic: str, configs: Mapping[str, str]) -> None:
        """Refusal."""
        key = frozenset(configs.items())
        if key not in self._valid or is_internal(topic):
            check_topic_configs(topic, configs, self._broker_config)
            self._valid.add(key)


def refuse(state: ClusterState, paths: Iterable[str]) -> ClusterState:
    return replace(
        state,
        refused_configs=state.refused_configs.union(paths),
        absent_configs=state.absent_configs.difference(paths),
    )


def _with(
    by_name: Mapping[str, Mapping[str, str]], name: str, configs: Mapping[str, str] | None
) -> dict[str, Mapping[str, str]]:
    others = {other: own for other, own in by_name.items() if other != name}
    return others if configs is None else {**others, name: configs}


# After an election.


def keep_known_broker_configs(
    state: ClusterState, damaged: Mapping[str, str], last_known: KnownConfigs, basis: ConfigBasis
) -> tuple[ClusterState, list[RefusedConfigs]]:
    """Brokers' and groups' configs that were changed for the worse while no controller could
    refuse them: in force stays what this broker knows. `damaged`: paths, and what is wrong."""
    refused: list[RefusedConfigs] = []
    kept = {
        ConfigScope.BROKER: dict(state.broker_configs),
        ConfigScope.GROUP: dict(state.group_configs),
    }
    before = {
        ConfigScope.BROKER: last_known.broker_configs,
        ConfigScope.GROUP: last_known.group_configs,
    }
    for path, problem in (*damaged.items(), *_invalid_broker_configs(state, basis)):
        resource = find_resource(path)
        if resource is None or resource.scope is None:
            continue
        configs = before[resource.scope].get(resource.name)
        if configs is not None:
            kept[resource.scope][resource.name] = configs
            refused.append(RefusedConfigs(path, f"{problem}; {KEPT}"))
        elif path in damaged:
            refused.append(RefusedConfigs(path, f"{problem}; nothing of it is in force"))
    after = replace(
        state,
        broker_configs=kept[ConfigScope.BROKER],
        group_configs=kept[ConfigScope.GROUP],
    )
    return refuse(after, [path for path, _ in refused]), refused


def _invalid_broker_configs(state: ClusterState, basis: ConfigBasis) -> Iterator[tuple[str, str]]:
    for name, configs in state.broker_configs.items():
        others = replace(state, broker_configs=_with(state.broker_configs, name, None))
        try:
            check_broker_configs(others, name, configs, basis)
        except Refusal as refusal:
            path = broker_config_path(name)
            yield path, f"{path}: {refusal.message}"


def keep_known_topic_configs(
    state: ClusterState, unreadable: Mapping[str, str], last_known: KnownConfigs, basis: ConfigBasis
) -> tuple[ClusterState, list[RefusedConfigs]]:
    """The same of topics. `unreadable`: topics, and what is wrong with their znode."""
    checks = TopicChecks(basis)
    kept: list[TopicState] = []
    refused: list[RefusedConfigs] = []
    for name, topic in state.topics.items():
        problem = unreadable.get(name) or _find_problem(checks, topic)
        if problem is None:
            continue
        before = last_known.find_topic(name)
        path = topic_config_path(name)
        if before is not None and before.topic_id == topic.topic_id:
            kept.append(replace(topic, configs=before.configs))
            refused.append(RefusedConfigs(path, f"{problem}; {KEPT}"))
        elif name in unreadable:
            refused.append(RefusedConfigs(path, f"{problem}; {describe_unreadable(name)}"))
    return refuse(state.with_topics(kept), [path for path, _ in refused]), refused


def _find_problem(checks: TopicChecks, topic: TopicState) -> str | None:
    try:
        if topic.configs:
            checks.check(topic.name, topic.configs)
    except Refusal as refusal:
        return f"{topic_config_path(topic.name)}: {refusal.message}"
    return None
