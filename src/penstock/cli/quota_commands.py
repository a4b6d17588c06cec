"""`penstock quota`: set, list and remove client quotas."""

from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.connect import (
    BootstrapOption,
    JsonOption,
    ask_cluster,
    command_group,
    fail,
    get_bootstrap,
    show_json,
    wants_json,
)

if TYPE_CHECKING:
    from penstock.model.quotas import QuotaEntity, QuotaKey, QuotaOperation, Quotas

app = command_group("Quotas: how much users, client ids and addresses may use of each broker.")

UserOption = Annotated[
    str | None, typer.Option("--user", metavar="NAME", help="A user: a principal without User:.")
]
ClientOption = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="A client id.")]
IpOption = Annotated[
    str | None, typer.Option("--ip", metavar="ADDRESS", help="An address of clients.")
]
DefaultUserOption = Annotated[
    bool, typer.Option("--user-default", help="Each user without a quota of its own.")
]
DefaultClientOption = Annotated[
    bool, typer.Option("--client-id-default", help="Each client id without one.")
]
DefaultIpOption = Annotated[bool, typer.Option("--ip-default", help="Each address without one.")]

_SET_HELP = """Set quotas of a user, a client id, both together, or an address.

\b
producer_byte_rate, consumer_byte_rate  bytes a second
request_percentage                      percent of the time of one thread
controller_mutation_rate                partitions a second, created or deleted
connection_creation_rate                connections a second; of addresses only

Every broker enforces them for itself. The most specific applies, a user before a client id; see
docs/quotas.md.

\b
Examples:
  penstock quota set --user ada producer_byte_rate=1048576 consumer_byte_rate=2097152
  penstock quota set --user ada --client-id etl request_percentage=50
  penstock quota set --user-default --client-id-default producer_byte_rate=65536
  penstock quota set --ip 10.0.0.7 connection_creation_rate=5
"""

_LIST_HELP = """List quotas: all of them, or those of some users, client ids or addresses.

\b
Examples:
  penstock quota list
  penstock quota list --user ada
  penstock quota list --json
"""

_REMOVE_HELP = """Remove quotas of a user, a client id, both together, or an address: those that are
named, or all.

\b
Examples:
  penstock quota remove --user ada producer_byte_rate
  penstock quota remove --ip 10.0.0.7
"""


@app.command("set", help=_SET_HELP)
def set_quotas(
    ctx: typer.Context,
    values: Annotated[list[str], typer.Argument(metavar="QUOTA=VALUE...")],
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: IpOption = None,
    user_default: DefaultUserOption = False,
    client_id_default: DefaultClientOption = False,
    ip_default: DefaultIpOption = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    entity = _entity(
        _name("--user", user, user_default),
        _name("--client-id", client_id, client_id_default),
        _name("--ip", ip, ip_default),
    )
    operations = [_read_value(entity, text) for text in values]
    _alter(ctx, bootstrap, entity, operations)
    _show({entity: _values(operations)}, "", wants_json(ctx, as_json))


@app.command("list", help=_LIST_HELP)
def list_quotas(
    ctx: typer.Context,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: IpOption = None,
    user_default: DefaultUserOption = False,
    client_id_default: DefaultClientOption = False,
    ip_default: DefaultIpOption = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.model.quotas import QuotaFilter, QuotaMatch

    names = {
        "user": _name("--user", user, user_default),
        "client-id": _name("--client-id", client_id, client_id_default),
        "ip": _name("--ip", ip, ip_default),
    }
    matches = [QuotaMatch(kind, name) for kind, name in names.items() if name is not None]
    wanted = QuotaFilter(tuple(matches))
    quotas = ask_cluster(
        get_bootstrap(ctx, bootstrap), lambda client: client.quotas.describe(wanted)
    )
    _show(quotas, "there is no such quota", wants_json(ctx, as_json))


@app.command("remove", help=_REMOVE_HELP)
def remove_quotas(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA]...")] = None,
    user: UserOption = None,
    client_id: ClientOption = None,
    ip: IpOption = None,
    user_default: DefaultUserOption = False,
    client_id_default: DefaultClientOption = False,
    ip_default: DefaultIpOption = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.model.quotas import QuotaFilter, QuotaMatch, QuotaOperation

    entity = _entity(
        _name("--user", user, user_default),
        _name("--client-id", client_id, client_id_default),
        _name("--ip", ip, ip_default),
    )
    wanted = [_read_key(entity, name) for name in names or ()]
    matches = tuple(QuotaMatch(kind, name) for kind, name in entity.parts().items())
    stored = ask_cluster(
        get_bootstrap(ctx, bootstrap),
        lambda client: client.quotas.describe(QuotaFilter(matches, is_strict=True)),
    ).get(entity, {})
    removed = {key: value for key, value in stored.items() if not wanted or key in wanted}
    if removed:
        _alter(ctx, bootstrap, entity, [QuotaOperation(key, None) for key in removed])
    quotas: dict[QuotaEntity, Quotas] = {entity: removed} if removed else {}
    _show(quotas, "there is no such quota, so none was removed", wants_json(ctx, as_json))


def _alter(
    ctx: typer.Context,
    bootstrap: str | None,
    entity: "QuotaEntity",
    operations: "list[QuotaOperation]",
) -> None:
    ask_cluster(
        get_bootstrap(ctx, bootstrap), lambda client: client.quotas.alter({entity: operations})
    )


def _name(option: str, name: str | None, is_default: bool) -> str | None:
    from penstock.model.quotas import DEFAULT_ENTITY

    if name == DEFAULT_ENTITY or (name is not None and is_default):
        fail(f"{option}: give a name, or {option}-default for all without a quota of their own", 2)
    return DEFAULT_ENTITY if is_default else name


def _entity(user: str | None, client_id: str | None, ip: str | None) -> "QuotaEntity":
    from penstock.model.quotas import InvalidQuota, QuotaEntity, check_entity

    try:
        return check_entity(QuotaEntity(user, client_id, ip))
    except InvalidQuota as error:
        fail(f"{error}; give --user, --client-id or both, or --ip", 2)


def _read_value(entity: "QuotaEntity", text: str) -> "QuotaOperation":
    from penstock.model.quotas import InvalidQuota, QuotaOperation, check_value

    name, equals, value = text.partition("=")
    key = _read_key(entity, name)
    try:
        if not equals:
            raise InvalidQuota(f"{text!r} has no value; write {key}=VALUE")
        return QuotaOperation(key, check_value(key, float(value)))
    except InvalidQuota as error:
        fail(str(error), 2)
    except ValueError:
        fail(f"{text!r}: {value!r} is no number", 2)


def _read_key(entity: "QuotaEntity", name: str) -> "QuotaKey":
    from penstock.model.quotas import InvalidQuota, find_key

    try:
        return find_key(entity, name)
    except InvalidQuota as error:
        fail(str(error), 2)


def _values(operations: "list[QuotaOperation]") -> "Quotas":
    return {key: value for key, value in operations if value is not None}


def _show(quotas: "dict[QuotaEntity, Quotas]", if_none: str, as_json: bool) -> None:
    from penstock.cli.tables import show_table
    from penstock.model.quotas import ENTITY_TYPES, format_quota

    rows = [
        {
            **{kind: _shown(entity.parts().get(kind)) for kind in ENTITY_TYPES},
            "quota": key.value,
            "value": format_quota(key, value),
        }
        for entity, values in quotas.items()
        for key, value in sorted(values.items())
    ]
    if as_json:
        show_json([{**row, "value": float(row["value"] or 0)} for row in rows])
    elif rows:
        show_table(tuple(rows[0]), [list(row.values()) for row in rows])
    else:
        typer.echo(if_none, err=True)


def _shown(name: str | None) -> str | None:
    """`<default>` as Kafka writes it; None: the entity has no such part."""
    return "<default>" if name == "" else name
