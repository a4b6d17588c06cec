"""AlterConfigs and IncrementalAlterConfigs: validates changes of topic, broker and group configs.

Pure. The changes of one resource are applied all together or not at all. The `config` package
validates the values, together with all other configs of the resource.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from penstock.config.custom_settings import (
    MAX_CUSTOM_SETTINGS,
    custom_names,
    find_custom_name_problem,
)
from penstock.config.effective_config import EffectiveConfig, resolve_broker, resolve_group
from penstock.config.raw_config import EMPTY_RAW_CONFIG, ConfigError, RawConfig
from penstock.config.registry import find_setting
from penstock.config.setting import SettingKind, SettingScope, format_value
from penstock.controller.controller_requests import update_metadata_requests
from penstock.controller.interface import (
    ApiError,
    ConfigEntryChange,
    ConfigResourceChange,
    ConfigScope,
)
from penstock.controller.refusals import (
    check_topic_configs,
    invalid_config,
    to_api_error,
    unknown_topic,
)
from penstock.controller.state import ClusterState, ControllerDecision, WriteStep
from penstock.controller.znodes import (
    broker_config_path,
    encode_configs,
    group_config_path,
    topic_config_path,
)
from penstock.metadata_store.interface import Create, Delete, SetData
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode, Refusal

MAX_CONFIGURED_GROUPS = 10_000  # all of them are in one UpdateMetadata request
MAX_CONFIGS_BYTES = 256 * 1024  # of one resource; with its topic they fit one transaction


class ConfigBasis(NamedTuple):
    """The controller's own static config, and its effective one."""

    static: RawConfig
    broker_config: EffectiveConfig


def resolve_dynamic_config(
    static: RawConfig, configs: Mapping[str, Mapping[str, str]], own: str
) -> EffectiveConfig:
    """A broker's effective config: its static one and the dynamic ones in the metadata store."""
    return resolve_broker(
        static,
        dynamic_cluster=_raw_config(configs.get("", {}), "every broker"),
        dynamic_broker=_raw_config(configs.get(own, {}) if own else {}, f"broker {own}"),
    )


def alter_configs(
    state: ClusterState, changes: Sequence[ConfigResourceChange], basis: ConfigBasis
) -> tuple[ControllerDecision, list[ApiError | None]]:
    decision = ControllerDecision(state=state)
    results: list[ApiError | None] = []
    counts = Counter((change.scope, change.name) for change in changes)
    for change in changes:
        try:
            _check_request(change, counts[change.scope, change.name])
            alter = _ALTER[change.scope]
            decision = decision.then(alter(decision.state, change, basis))
            results.append(None)
        except Refusal as refusal:
            results.append(to_api_error(refusal))
    return decision, results


def _check_request(change: ConfigResourceChange, times_named: int) -> None:
    if times_named > 1:
        raise _invalid(f"{_named(change)} is named more than once in the request")
    names = Counter(entry.name for entry in change.changes)
    duplicates = [name for name, count in names.items() if count > 1]
    if duplicates:
        raise _invalid(f"{_named(change)}: {', '.join(duplicates)} is named more than once")
    empty = [
        c.name for c in change.changes if c.value is None and c.kind is not ConfigOperation.DELETE
    ]
    if empty:
        raise _invalid(
            f"{_named(change)}: {', '.join(empty)} has no value; delete the config instead"
        )


def _alter_topic(
    state: ClusterState, change: ConfigResourceChange, basis: ConfigBasis
) -> ControllerDecision:
    if not change.name:
        raise _invalid("topics have no common config; set the broker's defaults instead")
    topic = state.find_topic(change.name)
    if topic is None:
        raise unknown_topic(state, change.name)

    def effective(name: str) -> str:
        config = check_topic_configs(topic.name, topic.configs, basis.broker_config)
        return format_value(config[name])

    configs = _changed(change, topic.configs, SettingScope.TOPIC, effective)
    check_topic_configs(topic.name, configs, basis.broker_config)
    path = topic_config_path(topic.name)
    after = without_refusal(state.with_topics([replace(topic, configs=configs)]), path)
    data = _encode(change, configs)
    return ControllerDecision(
        state=after,
        writes=(_put(path, data, exists=path not in state.absent_configs),),
        requests=update_metadata_requests(after, topics=[topic.name]),
    )


def _alter_broker(
    state: ClusterState, change: ConfigResourceChange, basis: ConfigBasis
) -> ControllerDecision:
    _check_broker(state, change.name)
    before = state.broker_configs.get(change.name, {})

    def effective(name: str) -> str:
        return format_value(_checked_config(basis, state.broker_configs, change.name)[name])

    configs = _changed(change, before, SettingScope.BROKER, effective)
    check_broker_configs(state, change.name, configs, basis)
    path = broker_config_path(change.name)
    exists = change.name in state.broker_configs or path in state.refused_configs
    after = replace(state, broker_configs={**state.broker_configs, change.name: configs})
    return ControllerDecision(
        state=without_refusal(after, path),
        writes=(_put(path, _encode(change, configs), exists=exists),),
        requests=update_metadata_requests(after, with_broker_configs=True),
    )


def _alter_group(
    state: ClusterState, change: ConfigResourceChange, basis: ConfigBasis
) -> ControllerDecision:
    """A group need not exist: it gets its configs before its first member."""
    if not change.name:
        raise _invalid("groups have no common config; set the broker's group.consumer.* instead")
    before = state.group_configs.get(change.name, {})
    configs = _changed(change, before, SettingScope.GROUP, lambda name: "")
    check_group_configs(state, change.name, configs, basis)
    others = {name: own for name, own in state.group_configs.items() if name != change.name}
    after = replace(state, group_configs={**others, change.name: configs} if configs else others)
    path = group_config_path(change.name)
    exists = change.name in state.group_configs or path in state.refused_configs
    return ControllerDecision(
        state=without_refusal(after, path),
        writes=_group_writes(path, _encode(change, configs) if configs else b"", exists=exists),
        requests=update_metadata_requests(after, with_group_configs=True),
    )


def _group_writes(path: str, data: bytes, *, exists: bool) -> tuple[WriteStep, ...]:
    if data:
        return (_put(path, data, exists=exists),)
    return ((Delete(path=path),),) if exists else ()


def _put(path: str, data: bytes, *, exists: bool) -> WriteStep:
    return (SetData(path=path, data=data) if exists else Create(path=path, data=data),)


def without_refusal(state: ClusterState, path: str) -> ClusterState:
    """What the znode of this path has is in force now, whatever was wrong with it before."""
    if path not in state.refused_configs and path not in state.absent_configs:
        return state
    return replace(
        state,
        refused_configs=state.refused_configs - {path},
        absent_configs=state.absent_configs - {path},
    )


# The checks of all configs of a resource, also of configs that a tool has stored. Refusal.


def check_broker_configs(
    state: ClusterState, name: str, configs: Mapping[str, str], basis: ConfigBasis
) -> None:
    _refuse_secrets(configs)
    _check_custom(name, state.broker_configs.get(name, {}), configs)
    _checked_config(basis, {**state.broker_configs, name: configs}, name)


def check_group_configs(
    state: ClusterState, name: str, configs: Mapping[str, str], basis: ConfigBasis
) -> None:
    if name not in state.group_configs and len(state.group_configs) >= MAX_CONFIGURED_GROUPS:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"{MAX_CONFIGURED_GROUPS} groups have configs of their own, which is the limit; delete "
            "those of groups that are gone",
        )
    try:
        resolve_group(_raw_config(configs, f"group {name[:249]!r}"), basis.broker_config)
    except ConfigError as error:
        raise invalid_config(error) from None


_ALTER: Mapping[
    ConfigScope, Callable[[ClusterState, ConfigResourceChange, ConfigBasis], ControllerDecision]
] = {
    ConfigScope.TOPIC: _alter_topic,
    ConfigScope.BROKER: _alter_broker,
    ConfigScope.GROUP: _alter_group,
}


def _checked_config(
    basis: ConfigBasis, configs: Mapping[str, Mapping[str, str]], broker: str
) -> EffectiveConfig:
    try:
        return resolve_dynamic_config(basis.static, configs, broker)
    except ConfigError as error:
        raise invalid_config(error) from None


def _check_broker(state: ClusterState, name: str) -> None:
    if not name:
        return
    if name not in {str(broker) for broker in state.brokers}:
        raise _invalid(
            f"{name[:60]!r} is not the id of a live broker; alive are {sorted(state.brokers)}, and "
            f"an empty name means every broker"
        )


def _refuse_secrets(configs: Mapping[str, str]) -> None:
    for name in configs:
        setting = find_setting(name, SettingScope.BROKER)
        if setting is not None and setting.sensitive:
            raise Refusal(
                ErrorCode.INVALID_CONFIG,
                f"{name} is a secret, which everybody could read in the metadata store; set it in "
                f"the broker's file",
            )


def _check_custom(broker: str, before: Mapping[str, str], configs: Mapping[str, str]) -> None:
    """Bound the custom settings; those that are stored already may stay."""
    custom = custom_names(configs)
    added = custom - before.keys()
    problems = [problem for name in sorted(added) if (problem := find_custom_name_problem(name))]
    if problems:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"{_broker_named(broker)}: {problems[0]}")
    if added and len(custom) > MAX_CUSTOM_SETTINGS:
        raise Refusal(
            ErrorCode.POLICY_VIOLATION,
            f"{_broker_named(broker)}: {len(custom)} settings with unknown names, but "
            f"{MAX_CUSTOM_SETTINGS} is the limit; delete some",
        )


# The resource's configs after the changes.


def _changed(
    change: ConfigResourceChange,
    before: Mapping[str, str],
    scope: SettingScope,
    effective: Callable[[str], str],
) -> dict[str, str]:
    configs = {} if change.replace else dict(before)
    for entry in change.changes:
        match entry.kind:
            case ConfigOperation.DELETE:
                configs.pop(entry.name, None)
            case ConfigOperation.SET:
                configs[entry.name] = entry.value or ""
            case _:
                _check_list(entry, scope)
                current = configs[entry.name] if entry.name in configs else effective(entry.name)
                configs[entry.name] = _changed_list(entry, current)
    return configs


def _check_list(change: ConfigEntryChange, scope: SettingScope) -> None:
    setting = find_setting(change.name, scope)
    if setting is not None and setting.kind is SettingKind.LIST:
        return
    why = "is not known" if setting is None else f"is a {setting.kind}, not a list"
    verb = change.kind.name.lower()
    raise Refusal(ErrorCode.INVALID_CONFIG, f"cannot {verb} to {change.name}: it {why}; set it")


def _changed_list(change: ConfigEntryChange, current: str) -> str:
    items = _items(current)
    named = _items(change.value or "")
    if change.kind is ConfigOperation.APPEND:
        return ",".join([*items, *(item for item in named if item not in items)])
    return ",".join(item for item in items if item not in named)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _encode(change: ConfigResourceChange, configs: Mapping[str, str]) -> bytes:
    data = encode_configs(configs)
    if len(data) > MAX_CONFIGS_BYTES:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"{_named(change)}: the configs take {len(data)} bytes, but at most "
            f"{MAX_CONFIGS_BYTES} fit in the metadata store",
        )
    return data


def _raw_config(configs: Mapping[str, str], where: str) -> RawConfig:
    return RawConfig.from_mapping(configs, where=where) if configs else EMPTY_RAW_CONFIG


def _named(change: ConfigResourceChange) -> str:
    return f"{change.scope.value} {change.name[:249]!r}" if change.name else "every broker"


def _broker_named(broker: str) -> str:
    return f"broker {broker[:249]!r}" if broker else "every broker"


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, message)
