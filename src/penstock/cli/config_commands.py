"""`penstock config`: describe and alter the configs of topics, brokers, groups and loggers."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    ask_cluster,
    command_group,
    fail,
    get_bootstrap,
    parse_pairs,
    show_json,
    wants_json,
)

if TYPE_CHECKING:
    from penstock.client.admin_values import AlterConfigOp, ConfigEntry, ConfigResource
    from penstock.client.cluster import ClusterClient

app = command_group("Describe and alter the configs of topics, brokers, groups and loggers.")

COLUMNS = ("setting", "value", "source", "default", "notes")
SYNONYM_COLUMNS = ("setting", "may be set as", "value", "source")

TypeArgument = Annotated[
    str,
    typer.Argument(metavar="TYPE", help="topic, broker, group or broker-logger."),
]
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A topic, a group, the id of a broker, or `default`: what all brokers have that do "
        "not set it themselves.",
    ),
]

_DESCRIBE_HELP = """Show configs: their values, where each comes from, and their defaults.

Without --all only what is set anywhere is shown: for this topic, broker or group, for all brokers,
or in a broker's file. Notes say what clients cannot change (read-only), what is not shown
(sensitive), and what Penstock accepts and does not act on (no effect).

\b
Examples:
  penstock config describe topic orders
  penstock config describe topic orders retention.ms cleanup.policy --synonyms
  penstock config describe broker 1 --all
  penstock config describe broker default
  penstock config describe broker-logger 1
  penstock config describe group billing --all --json | jq '.configs[] | select(.read_only | not)'
"""

_ALTER_HELP = """Change configs; those that are not named stay.

All changes are made, or none. --append and --subtract are for lists. --delete returns to what
holds without the setting. Levels of loggers hold until the broker restarts.

\b
Examples:
  penstock config alter topic orders --set retention.ms=3600000 --delete segment.ms
  penstock config alter topic orders --append cleanup.policy=compact
  penstock config alter broker default --set log.cleaner.threads=2
  penstock config alter group billing --set consumer.session.timeout.ms=50000
  penstock config alter broker-logger 1 --set penstock.replication=DEBUG
"""

SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Set it to this value. Repeatable."),
]
AppendOption = Annotated[
    list[str] | None,
    typer.Option("--append", metavar="NAME=VALUE", help="Add to a list. Repeatable."),
]
SubtractOption = Annotated[
    list[str] | None,
    typer.Option("--subtract", metavar="NAME=VALUE", help="Remove from a list. Repeatable."),
]
DeleteOption = Annotated[
    list[str] | None,
    typer.Option("--delete", metavar="NAME", help="Unset it. Repeatable."),
]


@app.command(help=_DESCRIBE_HELP)
def describe(
    ctx: typer.Context,
    kind: TypeArgument,
    name: NameArgument,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="[SETTINGS]...", help="Only these settings.")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also what is set nowhere: Kafka's defaults.")
    ] = False,
    synonyms: Annotated[
        bool,
        typer.Option("--synonyms", help="Every place where it may be set, the strongest first."),
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    resource = _read_resource(kind, name)

    async def work(client: "ClusterClient") -> "list[ConfigEntry]":
        described = await client.admin.describe_configs(
            [resource], names=settings or None, with_synonyms=True, with_documentation=True
        )
        return sorted(described[resource], key=lambda entry: entry.name)

    entries = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    strangers = sorted(set(settings or ()) - {entry.name for entry in entries})
    shown = [entry for entry in entries if every or settings or not entry.is_default]
    if wants_json(ctx, as_json):
        listed = [_entry_json(entry, with_synonyms=synonyms) for entry in shown]
        show_json({"type": _type_text(resource), "name": resource.name, "configs": listed})
    else:
        _show(resource, shown, with_synonyms=synonyms)
    if strangers:
        fail(f"{resource} has no setting {', '.join(strangers)}", 1)


def _show(resource: "ConfigResource", entries: "list[ConfigEntry]", *, with_synonyms: bool) -> None:
    from penstock.cli.tables import show_table

    if not entries:
        has_more = resource.name != ""  # the defaults of all brokers are only what is set
        typer.echo(
            f"nothing is set for {resource}" + (": --all shows the defaults" if has_more else ""),
            err=True,
        )
        return
    show_table(COLUMNS, [_entry_row(entry) for entry in entries])
    rows = [
        [entry.name, synonym.name, _value_text(synonym.value, entry), _source_text(synonym.source)]
        for entry in entries
        for synonym in entry.synonyms
    ]
    if with_synonyms and rows:
        print()
        show_table(SYNONYM_COLUMNS, rows)


def _entry_row(entry: "ConfigEntry") -> list[object]:
    return [
        entry.name,
        _value_text(entry.value, entry),
        _source_text(entry.source),
        _default(entry),
        ", ".join(_notes(entry)),
    ]


def _notes(entry: "ConfigEntry") -> list[str]:
    notes = {
        "read-only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "no effect": entry.without_effect is not None,
    }
    return [note for note, holds in notes.items() if holds]


def _entry_json(entry: "ConfigEntry", *, with_synonyms: bool) -> dict[str, object]:
    described: dict[str, object] = {
        "name": entry.name,
        "value": entry.value,
        "source": _source_text(entry.source),
        "default": _default(entry),
        "is_default": entry.is_default,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "without_effect": entry.without_effect,
        "documentation": entry.documentation,
    }
    if not with_synonyms:
        return described
    return described | {
        "synonyms": [
            {"name": one.name, "value": one.value, "source": _source_text(one.source)}
            for one in entry.synonyms
        ]
    }


def _default(entry: "ConfigEntry") -> str | None:
    """Kafka's default, by its own name before that of a coarser unit; None: there is none."""
    defaults = [one for one in entry.synonyms if one.source.name == "DEFAULT"]
    if entry.is_default:
        return entry.value
    if not defaults:
        return None
    chosen = next((one for one in defaults if one.name == entry.name), defaults[0])
    return chosen.value if chosen.name == entry.name else f"{chosen.name}={chosen.value}"


def _value_text(value: str | None, entry: "ConfigEntry") -> str | None:
    return "(hidden)" if value is None and entry.is_sensitive else value


def _source_text(source: "object") -> str:
    from penstock.client.admin_values import DescribedConfigSource

    texts = {
        DescribedConfigSource.TOPIC: "topic",
        DescribedConfigSource.GROUP: "group",
        DescribedConfigSource.BROKER: "broker",
        DescribedConfigSource.ALL_BROKERS: "all brokers",
        DescribedConfigSource.STATIC: "broker's file",
        DescribedConfigSource.DEFAULT: "default",
        DescribedConfigSource.BROKER_LOGGER: "broker logger",
        DescribedConfigSource.CLIENT_METRICS: "client metrics",
    }
    return texts.get(source, "unknown")  # type: ignore[call-overload, no-any-return] # any object


@app.command(help=_ALTER_HELP)
def alter(
    ctx: typer.Context,
    kind: TypeArgument,
    name: NameArgument,
    values: SetOption = None,
    append: AppendOption = None,
    subtract: SubtractOption = None,
    delete: DeleteOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only ask whether the change is valid.")
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    resource = _read_resource(kind, name)
    changes = _read_changes(values or [], append or [], subtract or [], delete or [])
    names = [change.name for change in changes]
    without_effect: dict[str, str] = {}

    async def work(client: "ClusterClient") -> None:
        from penstock.cli.settings_without_effect import find_without_effect

        await client.admin.incremental_alter_configs({resource: changes}, validate_only=dry_run)
        without_effect.update(await find_without_effect(client, resource, names))

    ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if without_effect:
        from penstock.cli.settings_without_effect import warn

        warn(without_effect)
    if wants_json(ctx, as_json):
        show_json(
            {
                "type": _type_text(resource),
                "name": resource.name,
                "altered": not dry_run,
                "settings": names,
                "without_effect": without_effect,
            }
        )
    elif dry_run:
        print(f"{resource} would take {'this change' if len(names) == 1 else 'these changes'}")
    else:
        print(f"altered {resource}: {', '.join(names)}")


def _read_resource(kind: str, name: str) -> "ConfigResource":
    from penstock.client.admin_values import ConfigResource

    if not name:
        fail("NAME is empty: name a topic, a group, or the id of a broker", 2)
    kind = kind.lower().removesuffix("s")
    if kind == "broker" and name == "default":
        return ConfigResource.all_brokers()
    makers: dict[str, Callable[[str], ConfigResource]] = {
        "topic": ConfigResource.topic,
        "group": ConfigResource.group,
        "broker": lambda name: ConfigResource.broker(_read_broker(name)),
        "broker-logger": lambda name: ConfigResource.broker_logger(_read_broker(name)),
    }
    if kind not in makers:
        fail(f"TYPE {kind!r} does not exist: write topic, broker, group or broker-logger", 2)
    return makers[kind](name)


def _read_broker(name: str) -> int:
    if not (name.isascii() and name.isdecimal()):
        fail(f"{name!r} is not the id of a broker: write a number, for example 1", 2)
    return int(name)


def _read_changes(
    values: list[str], append: list[str], subtract: list[str], delete: list[str]
) -> "list[AlterConfigOp]":
    from penstock.client.admin_values import AlterConfigOp
    from penstock.model.admin import ConfigOperation

    pairs = (
        ("--set", values, ConfigOperation.SET),
        ("--append", append, ConfigOperation.APPEND),
        ("--subtract", subtract, ConfigOperation.SUBTRACT),
    )
    changes = [
        AlterConfigOp(name, value, operation)
        for option, texts, operation in pairs
        for text in texts
        for name, value in parse_pairs(option, [text]).items()
    ]
    changes += [AlterConfigOp(name, None, ConfigOperation.DELETE) for name in delete]
    if not changes:
        fail("nothing to alter: give --set, --append, --subtract or --delete", 2)
    names = [change.name for change in changes]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        fail(f"{', '.join(twice)} is given more than once: give each setting once", 2)
    return changes


def _type_text(resource: "ConfigResource") -> str:
    return resource.kind.name.lower().replace("_", "-")
