"""Parses raw configs into the effective config: every setting's typed value with its source.

The result is complete and consistent, or ConfigError lists every problem.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import NamedTuple

from penstock.config.cross_checks import (
    ConfigFinding,
    broker_conflicts,
    broker_doubts,
    group_conflicts,
    topic_conflicts,
)
from penstock.config.raw_config import EMPTY_RAW_CONFIG, ConfigError, RawConfig, RawValue
from penstock.config.refused_names import find_refusal
from penstock.config.registry import (
    BROKER_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    find_listener_setting,
    find_setting,
    nearest_names,
)
from penstock.config.security_checks import security_conflicts
from penstock.config.setting import BadValueError, Setting, SettingScope, UpdateMode, Value

# Settings of plugins, whose names only the plugin knows; there are no plugins here.
_PLUGIN_PREFIXES = ("rsm.config.", "rlmm.config.")


class SettingSource(StrEnum):
    """Where a value comes from; a later source overrides an earlier one."""

    DEFAULT = "default"
    STATIC_BROKER = "static broker"
    DYNAMIC_CLUSTER = "dynamic cluster"
    DYNAMIC_BROKER = "dynamic broker"
    TOPIC = "topic"
    GROUP = "group"


# Unknown names of these are custom settings, which are stored for others and never parsed.
_DYNAMIC = (SettingSource.DYNAMIC_CLUSTER, SettingSource.DYNAMIC_BROKER)


class EffectiveValue(NamedTuple):
    setting: Setting
    value: Value
    source: SettingSource
    set_as: str | None = None  # the name that set it, perhaps a fallback's; None: default
    where: str | None = None

    def __repr__(self) -> str:
        """In tracebacks and messages of tests, where a secret must not be."""
        value = "[hidden]" if self.setting.sensitive else repr(self.value)
        return f"EffectiveValue({self.setting.name}={value}, {self.source.name})"


class EffectiveConfig(Mapping[str, Value]):
    """Setting name -> typed value, for every declared setting of the scope.

    The `get_` methods say which type a caller expects: a setting of another kind, or one that is
    not set, breaks an invariant of the caller, since the declaration fixes both.
    """

    def __init__(
        self,
        values: Mapping[str, EffectiveValue],
        *,
        by_listener: Mapping[str, EffectiveValue],
        warnings: tuple[str, ...],
        of_plugins: tuple[str, ...] = (),
    ) -> None:
        self._values = values
        self._of_plugins = of_plugins  # names that only a plugin would know
        self.by_listener = by_listener  # "listener.name.<name>.<setting>" as the user wrote it
        self.warnings = warnings

    def __getitem__(self, name: str) -> Value:
        return self._values[name].value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def get_effective(self, name: str) -> EffectiveValue:
        """The value with its setting and its source."""
        return self._values[name]

    def get_int(self, name: str) -> int:
        value = self._values[name].value
        assert isinstance(value, int), f"{name} is {value!r}, not an int"
        return value

    def get_float(self, name: str) -> float:
        value = self._values[name].value
        assert isinstance(value, float | int), f"{name} is {value!r}, not a number"
        return float(value)

    def get_bool(self, name: str) -> bool:
        value = self._values[name].value
        assert isinstance(value, bool), f"{name} is {value!r}, not a boolean"
        return value

    def get_str(self, name: str) -> str:
        value = self._values[name].value
        assert isinstance(value, str), f"{name} is {value!r}, not a text"
        return value

    def find_str(self, name: str) -> str | None:
        """None: not set."""
        value = self._values[name].value
        return None if value is None else self.get_str(name)

    def get_list(self, name: str) -> tuple[str, ...]:
        value = self._values[name].value
        assert isinstance(value, tuple), f"{name} is {value!r}, not a list"
        return value

    def without_effect(self) -> tuple[EffectiveValue, ...]:
        """The settings that the user set and that change nothing; each one's effect says why."""
        return tuple(
            effective
            for name, effective in self._values.items()
            if effective.set_as == name and not effective.setting.active
        )

    def describe_without_effect(self) -> str | None:
        """One line that counts and names them; None if every setting that was set has an effect."""
        inert = [
            *(
                f"{effective.setting.name} ({effective.setting.effect.removeprefix('accepted, ')})"
                for effective in self.without_effect()
            ),
            *(
                f"{name} (no effect: only settings of TLS and SASL are read for a single listener)"
                for name, effective in self.by_listener.items()
                if not effective.setting.of_listeners or not effective.setting.active
            ),
            *(f"{name} (no effect: there are no plugins)" for name in self._of_plugins),
        ]
        if not inert:
            return None
        return (
            f"{len(inert)} of the settings change nothing here: {', '.join(inert)}; "
            f"docs/configuration.md has the effect of every setting"
        )


def resolve_broker(
    static: RawConfig = EMPTY_RAW_CONFIG,
    *,
    dynamic_cluster: RawConfig = EMPTY_RAW_CONFIG,
    dynamic_broker: RawConfig = EMPTY_RAW_CONFIG,
) -> EffectiveConfig:
    """A broker's effective config, from its file and from dynamic configs without the custom
    settings among them."""
    layers = (
        (SettingSource.STATIC_BROKER, static),
        (SettingSource.DYNAMIC_CLUSTER, dynamic_cluster),
        (SettingSource.DYNAMIC_BROKER, dynamic_broker),
    )
    problems: list[str] = []
    explicit: dict[str, EffectiveValue] = {}
    for source, layer in layers:
        problems += layer.problems
        explicit.update(_parse_layer(layer, source, SettingScope.BROKER, problems))
    if problems:  # cross checks would only repeat the problems of single settings
        raise ConfigError(problems)
    effective_values = {
        name: _with_fallbacks(setting, explicit) for name, setting in BROKER_SETTINGS.items()
    }
    values = {name: effective.value for name, effective in effective_values.items()}
    conflicts = [
        *broker_conflicts(values, explicit.keys()),
        *security_conflicts(values, explicit.keys()),
    ]
    _raise_if_any(conflicts, {**explicit, **effective_values})
    doubts = [_located(doubt, effective_values) for doubt in broker_doubts(values, explicit.keys())]
    return EffectiveConfig(
        effective_values,
        by_listener={
            name: effective for name, effective in explicit.items() if name not in BROKER_SETTINGS
        },
        warnings=(*(warning for _, layer in layers for warning in layer.warnings), *doubts),
        of_plugins=tuple(name for name in static.values if name.startswith(_PLUGIN_PREFIXES)),
    )


def resolve_topic(overrides: RawConfig, broker: EffectiveConfig) -> EffectiveConfig:
    """A topic's effective config: its own values, else the broker's in order, else the defaults."""
    problems = list(overrides.problems)
    explicit = _parse_layer(overrides, SettingSource.TOPIC, SettingScope.TOPIC, problems)
    if problems:
        raise ConfigError(problems)
    effective_values = {
        name: explicit.get(name) or _from_broker(setting, broker)
        for name, setting in TOPIC_SETTINGS.items()
    }
    _raise_if_any(
        topic_conflicts({name: effective.value for name, effective in effective_values.items()}),
        effective_values,
    )
    return EffectiveConfig(effective_values, by_listener={}, warnings=overrides.warnings)


def resolve_group(overrides: RawConfig, broker: EffectiveConfig) -> EffectiveConfig:
    """A consumer group's effective config: its own values, else the broker's."""
    problems = list(overrides.problems)
    explicit = _parse_layer(overrides, SettingSource.GROUP, SettingScope.GROUP, problems)
    if problems:
        raise ConfigError(problems)
    effective_values = {
        name: explicit.get(name) or _from_broker(setting, broker)
        for name, setting in GROUP_SETTINGS.items()
    }
    values = {name: effective.value for name, effective in effective_values.items()}
    if explicit:  # the brokers' own values are theirs to check
        _raise_if_any(group_conflicts(values, broker), effective_values)
    return EffectiveConfig(effective_values, by_listener={}, warnings=overrides.warnings)


def _raise_if_any(
    conflicts: list[ConfigFinding], effective_values: Mapping[str, EffectiveValue]
) -> None:
    if conflicts:
        raise ConfigError(_located(conflict, effective_values) for conflict in conflicts)


def _located(finding: ConfigFinding, effective_values: Mapping[str, EffectiveValue]) -> str:
    where = effective_values[finding.name].where
    return f"{where or 'default'}: {finding.name}: {finding.message}"


def _parse_layer(
    layer: RawConfig, source: SettingSource, scope: SettingScope, problems: list[str]
) -> dict[str, EffectiveValue]:
    parsed: dict[str, EffectiveValue] = {}
    for name, raw in layer.values.items():
        if scope is SettingScope.BROKER and name.startswith(_PLUGIN_PREFIXES):
            continue
        setting = find_setting(name, scope)
        if setting is None and scope is SettingScope.BROKER:
            setting = find_listener_setting(name)
        problem = _find_name_problem(name, setting, source, scope)
        if problem is not None:
            problems.append(f"{raw.where}: {problem}")
        elif setting is not None:
            _parse_one(name, setting, raw, source, parsed, problems)
    return parsed


def _find_name_problem(
    name: str, setting: Setting | None, source: SettingSource, scope: SettingScope
) -> str | None:
    if setting is None:
        refusal = find_refusal(name) if scope is SettingScope.BROKER else None
        if refusal:
            return f"{name} {refusal}"
        return None if source in _DYNAMIC else _unknown(name, scope)
    if source not in _DYNAMIC:
        return None
    if setting.update is UpdateMode.READ_ONLY:
        return f"{name} is read-only: set it in the broker's file and restart the broker"
    if setting.update is UpdateMode.PER_BROKER and source is SettingSource.DYNAMIC_CLUSTER:
        return f"{name} is set per broker: it cannot be set for the whole cluster"
    return None


def _unknown(name: str, scope: SettingScope) -> str:
    nearest = nearest_names(name, scope)
    advice = f"did you mean {' or '.join(nearest)}?" if nearest else "remove it"
    return f"{name} is not a known {scope} setting; {advice}"


def _parse_one(
    name: str,
    setting: Setting,
    raw: RawValue,
    source: SettingSource,
    parsed: dict[str, EffectiveValue],
    problems: list[str],
) -> None:
    try:
        value = setting.parse(raw.text)
    except BadValueError as error:
        problems.append(f"{raw.where}: {name} = {setting.show(raw.text)} is not valid; {error}")
        return
    parsed[name] = EffectiveValue(
        setting=setting, value=value, source=source, set_as=name, where=raw.where
    )


def _with_fallbacks(setting: Setting, explicit: Mapping[str, EffectiveValue]) -> EffectiveValue:
    if setting.name in explicit:
        return explicit[setting.name]
    for fallback in setting.fallbacks:
        if fallback.name in explicit:
            effective = explicit[fallback.name]
            return effective._replace(setting=setting, value=fallback.convert(effective.value))
    return EffectiveValue(setting=setting, value=_default_of(setting), source=SettingSource.DEFAULT)


def _default_of(setting: Setting) -> Value:
    """The declared default, or the last fallback's when the setting has none of its own."""
    if setting.default is not None or not setting.fallbacks:
        return setting.default
    last = setting.fallbacks[-1]
    return last.convert(BROKER_SETTINGS[last.name].default)


def _from_broker(setting: Setting, broker: EffectiveConfig) -> EffectiveValue:
    for synonym in setting.fallbacks:
        effective = broker.get_effective(synonym.name)
        if effective.source is not SettingSource.DEFAULT:
            return effective._replace(setting=setting, value=synonym.convert(effective.value))
    return EffectiveValue(setting=setting, value=setting.default, source=SettingSource.DEFAULT)
