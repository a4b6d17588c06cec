"""Settings as DescribeConfigs and CreateTopics return them: value, source and synonyms.

Nothing is changed here, and no secret's value is returned. Invariant: an entry's source is that of
the first synonym, the effective value.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.apis.admin.alterable_configs import is_alterable
from penstock.apis.response_shapes import Shape
from penstock.config.custom_settings import custom_names
from penstock.config.effective_config import (
    EffectiveValue,
    SettingSource,
    resolve_group,
    resolve_topic,
)
from penstock.config.raw_config import RawConfig
from penstock.config.registry import BROKER_SETTINGS, find_listener_setting, find_setting
from penstock.config.setting import NOT_OURS, Setting, SettingKind, SettingScope, Value

if TYPE_CHECKING:
    from penstock.apis.services import Services


_GENERATED_IDS = ("broker.id", "node.id")  # at the first start, if not configured
_TO_BE_GENERATED = -1
_DYNAMIC_LAYERS = 2  # the first of broker_layers


class ResponseConfigSource(IntEnum):
    """The sources of a config value, with Kafka's codes."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_CLUSTER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ResponseConfigEntry(NamedTuple):
    """One entry of the response; fields have the protocol's names."""

    name: str
    value: str | None  # None: not set, or a secret
    read_only: bool
    config_source: int
    is_sensitive: bool
    synonyms: tuple[Synonym, ...]  # the effective value first, then the values that it overrides
    config_type: int
    documentation: str


class Layer(NamedTuple):
    source: ResponseConfigSource
    texts: Mapping[str, str]


def overriding_entries(
    scope: SettingScope,
    own: Mapping[str, str],
    services: "Services",
    only: Collection[str] | None = None,
) -> list[ResponseConfigEntry]:
    """Every setting of a topic or a group with these values of its own, which override the
    broker's. ConfigError if they are invalid, perhaps because a bound of the brokers has changed.
    """
    resolve = _RESOLVERS[scope]
    config = resolve(RawConfig.from_mapping(own, where=scope), services.effective_config())
    layers = broker_layers(services)
    return [
        _overriding_entry(config.get_effective(name), layers)
        for name in config
        if only is None or name in only
    ]


def broker_entries(
    services: "Services", only: Collection[str] | None = None
) -> list[ResponseConfigEntry]:
    """Every setting of this broker, those for one listener included."""
    config = services.effective_config()
    values = {name: config.get_effective(name) for name in config} | dict(config.by_listener)
    for name in _GENERATED_IDS:
        if values[name].value == _TO_BE_GENERATED:
            values[name] = values[name]._replace(value=services.broker_id)
    layers = broker_layers(services)
    entries = [
        _broker_entry(name, effective, layers)
        for name, effective in values.items()
        if only is None or name in only
    ]
    return entries + _custom_entries(layers[:_DYNAMIC_LAYERS], only)


def cluster_default_entries(
    services: "Services", only: Collection[str] | None = None
) -> list[ResponseConfigEntry]:
    """The dynamic cluster-wide defaults; other settings have no entry."""
    layer = _cluster_layer(services)
    custom = custom_names(layer.texts)
    entries = [
        _cluster_default_entry(name, layer)
        for name in layer.texts
        if name not in custom and (only is None or name in only)
    ]
    return entries + _custom_entries((layer,), only)


def shape_entries(
    entries: Iterable[ResponseConfigEntry],
    shape: Shape,
    *,
    with_synonyms: bool = False,
    with_documentation: bool = False,
) -> tuple[Any, ...]:
    """The entries as the protocol's classes, without the fields that a version lacks."""
    return tuple(
        shape(
            **entry._asdict()
            | {
                "synonyms": tuple(
                    shape["synonyms"](**synonym._asdict())
                    for synonym in entry.synonyms
                    if with_synonyms
                ),
                "documentation": entry.documentation if with_documentation else None,
            }
        )
        for entry in entries
    )


def broker_layers(services: "Services") -> tuple[Layer, ...]:
    """All layers of this broker's settings, the strongest first."""
    dynamic = services.metadata.broker_configs
    static = {name: raw.text for name, raw in services.static_config.values.items()}
    return (
        Layer(ResponseConfigSource.DYNAMIC_BROKER, dynamic.get(str(services.broker_id), {})),
        _cluster_layer(services),
        Layer(ResponseConfigSource.STATIC_BROKER, static),
        Layer(ResponseConfigSource.DEFAULT, _default_texts()),
    )


def _cluster_layer(services: "Services") -> Layer:
    return Layer(ResponseConfigSource.DYNAMIC_CLUSTER, services.metadata.broker_configs.get("", {}))


@cache
def _default_texts() -> Mapping[str, str]:
    return MappingProxyType(
        {
            name: setting.format(setting.default)
            for name, setting in BROKER_SETTINGS.items()
            if setting.default is not None
        }
    )


def _overriding_entry(effective: EffectiveValue, layers: tuple[Layer, ...]) -> ResponseConfigEntry:
    setting = effective.setting
    names = tuple(fallback.name for fallback in setting.fallbacks)
    own = Synonym(setting.name, _text(setting, effective.value), _SOURCES[effective.source])
    others = _synonyms(names, layers, setting)
    is_own = effective.source in (SettingSource.TOPIC, SettingSource.GROUP)
    return _entry(
        setting.name, setting, effective, synonyms=(own, *others) if is_own else tuple(others)
    )


def _broker_entry(
    name: str, effective: EffectiveValue, layers: tuple[Layer, ...]
) -> ResponseConfigEntry:
    setting = effective.setting
    # A listener's setting comes before the general one, a finer unit before a coarser.
    names = dict.fromkeys((name, setting.name, *(fallback.name for fallback in setting.fallbacks)))
    return _entry(name, setting, effective, synonyms=tuple(_synonyms(names, layers, setting)))


def _cluster_default_entry(name: str, layer: Layer) -> ResponseConfigEntry:
    setting = find_setting(name, SettingScope.BROKER) or find_listener_setting(name)
    assert setting is not None, f"{name} was set for all brokers, but is not a setting"
    text = None if setting.sensitive else layer.texts[name]
    return ResponseConfigEntry(
        name=name,
        value=text,
        read_only=not is_alterable(setting),
        config_source=layer.source,
        is_sensitive=setting.sensitive,
        synonyms=(Synonym(name, text, layer.source),),
        config_type=_TYPES[setting.kind],
        documentation=_documentation(setting),
    )


def _custom_entries(
    layers: tuple[Layer, ...], only: Collection[str] | None
) -> list[ResponseConfigEntry]:
    """As in Kafka, a setting of unknown type may be a secret, so that its value is hidden."""
    names = sorted(custom_names(name for layer in layers for name in layer.texts))
    return [_custom_entry(name, layers) for name in names if only is None or name in only]


def _custom_entry(name: str, layers: tuple[Layer, ...]) -> ResponseConfigEntry:
    synonyms = tuple(Synonym(name, None, source) for source, texts in layers if name in texts)
    return ResponseConfigEntry(
        name=name,
        value=None,
        read_only=True,  # in Kafka too: it is not among the settings that are known as dynamic
        config_source=synonyms[0].source,
        is_sensitive=True,
        synonyms=synonyms,
        config_type=_UNKNOWN_TYPE,
        documentation=NOT_OURS,
    )


def _entry(
    name: str, setting: Setting, effective: EffectiveValue, *, synonyms: tuple[Synonym, ...]
) -> ResponseConfigEntry:
    return ResponseConfigEntry(
        name=name,
        value=_text(setting, effective.value),
        read_only=not is_alterable(setting),
        config_source=_SOURCES[effective.source],
        is_sensitive=setting.sensitive,
        synonyms=synonyms,
        config_type=_TYPES[setting.kind],
        documentation=_documentation(setting),
    )


def _synonyms(
    names: Iterable[str], layers: tuple[Layer, ...], setting: Setting
) -> Iterator[Synonym]:
    """All values of the setting, by layer and in each by precedence, in Kafka's order.

    Kafka drops those before the setting's own name, and with them a log.retention.hours that
    determines the value; here they stay.
    """
    for source, texts in layers:
        for name in names:
            if name in texts:
                yield Synonym(name, None if setting.sensitive else texts[name], source)


def _text(setting: Setting, value: Value) -> str | None:
    return None if value is None or setting.sensitive else setting.format(value)


def _documentation(setting: Setting) -> str:
    return setting.doc if setting.active else f"{setting.doc} ({setting.effect})"


_RESOLVERS = MappingProxyType(
    {SettingScope.TOPIC: resolve_topic, SettingScope.GROUP: resolve_group}
)
_SOURCES: Mapping[SettingSource, ResponseConfigSource] = MappingProxyType(
    {
        SettingSource.TOPIC: ResponseConfigSource.TOPIC,
        SettingSource.GROUP: ResponseConfigSource.GROUP,
        SettingSource.DYNAMIC_BROKER: ResponseConfigSource.DYNAMIC_BROKER,
        SettingSource.DYNAMIC_CLUSTER: ResponseConfigSource.DYNAMIC_CLUSTER,
        SettingSource.STATIC_BROKER: ResponseConfigSource.STATIC_BROKER,
        SettingSource.DEFAULT: ResponseConfigSource.DEFAULT,
    }
)
# Kafka's codes of the kinds of values.
_UNKNOWN_TYPE = 0
_TYPES: Mapping[SettingKind, int] = MappingProxyType(
    {
        SettingKind.BOOLEAN: 1,
        SettingKind.STRING: 2,
        SettingKind.INT: 3,
        SettingKind.SHORT: 4,
        SettingKind.LONG: 5,
        SettingKind.DOUBLE: 6,
        SettingKind.LIST: 7,
        SettingKind.CLASS: 8,
        SettingKind.PASSWORD: 9,
    }
)
