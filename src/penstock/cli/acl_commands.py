"""`penstock acl`: add, list and remove access control lists, and ask what they allow."""

from collections.abc import Iterable
from enum import IntEnum
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

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
    from penstock.client.cluster import ClusterClient
    from penstock.model.acls import AclBinding, AclFilter, AclOperation, ResourcePattern
    from penstock.security.acl_index import Decision

app = command_group(
    "Access control lists: who may do what to which topic or group, and from where."
)

_Member = TypeVar("_Member", bound=IntEnum)

TopicOption = Annotated[
    list[str], typer.Option("--topic", metavar="NAME", help="A topic; * is all.")
]
GroupOption = Annotated[list[str], typer.Option("--group", metavar="ID", help="A group; * is all.")]
TransactionOption = Annotated[
    list[str],
    typer.Option("--transactional-id", metavar="ID", help="A transactional id; * is all."),
]
ClusterOption = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
PrefixedOption = Annotated[
    bool, typer.Option("--prefixed", help="The names are prefixes of names.")
]
OperationOption = Annotated[
    list[str],
    typer.Option("--operation", metavar="OPERATION", help="Such as read; all is every one."),
]

_ADD_HELP = """Add rules: every principal, host and operation on every resource that is named.

A rule that denies wins over any that allows. Allowing to read, write, delete or alter also allows
to describe. The broker needs authorizer.class.name, see docs/acls.md.

\b
Examples:
  penstock acl add --allow User:ada --operation read --operation write --topic orders
  penstock acl add --allow User:etl --operation read --topic etl- --group etl- --prefixed
  penstock acl add --deny 'User:*' --operation all --topic payments --host 10.1.0.0/16
  penstock acl add --allow User:ops --operation alter --operation describe --cluster
"""

_LIST_HELP = """List rules, or those for some resources or one principal.

With --match also the rules of prefixes and of * that a named resource falls under.

\b
Examples:
  penstock acl list
  penstock acl list --topic orders --match
  penstock acl list --principal User:ada --json
"""

_REMOVE_HELP = """Remove the rules that match all of the options, and print them.

\b
Examples:
  penstock acl remove --principal User:ada --operation write --topic orders
  penstock acl remove --principal User:bob
  penstock acl remove --all
"""

_TEST_HELP = """Ask whether something would be allowed, and by which rule. Nothing is done.

The exit code is 0 if it would be, else 1. Reads the rules and the settings of a broker, which needs
Describe and DescribeConfigs on the cluster.

\b
Examples:
  penstock acl test --principal User:ada --operation read --topic orders
  penstock acl test --principal User:ada --operation read --group g --host 10.0.0.7 --json
"""


@app.command(help=_ADD_HELP)
def add(
    ctx: typer.Context,
    allow: Annotated[
        list[str], typer.Option("--allow", metavar="PRINCIPAL", help="User:name, or User:*.")
    ] = [],  # noqa: B006
    deny: Annotated[
        list[str], typer.Option("--deny", metavar="PRINCIPAL", help="User:name, or User:*.")
    ] = [],  # noqa: B006
    operation: OperationOption = [],  # noqa: B006
    topic: TopicOption = [],  # noqa: B006
    group: GroupOption = [],  # noqa: B006
    transactional_id: TransactionOption = [],  # noqa: B006
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    host: Annotated[
        list[str],
        typer.Option("--host", metavar="HOST", help="An address or a network.  [default: *]"),
    ] = [],  # noqa: B006
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.model.acls import (
        AccessControlEntry,
        AclBinding,
        AclPermission,
        InvalidAcl,
        check_binding,
        check_operation,
    )

    patterns = _patterns(topic, group, transactional_id, cluster, prefixed)
    if not patterns:
        fail("no resource is named: give --topic, --group, --transactional-id or --cluster", 2)
    principals = [(name, AclPermission.ALLOW) for name in allow]
    principals += [(name, AclPermission.DENY) for name in deny]
    if not principals or not operation:
        fail("give --allow or --deny with a principal, and --operation", 2)
    bindings = [
        AclBinding(pattern, AccessControlEntry(name, at, _read_operation(wanted), permission))
        for pattern, (name, permission), at, wanted in product(
            patterns, principals, host or ["*"], operation
        )
    ]
    try:
        for binding in bindings:
            check_operation(check_binding(binding))
    except InvalidAcl as error:
        fail(str(error), 2)
    ask_cluster(get_bootstrap(ctx, bootstrap), lambda client: client.acls.create(bindings))
    _show(bindings, "", wants_json(ctx, as_json))


@app.command("list", help=_LIST_HELP)
def list_acls(
    ctx: typer.Context,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="User:name, or User:*.")
    ] = None,
    topic: TopicOption = [],  # noqa: B006
    group: GroupOption = [],  # noqa: B006
    transactional_id: TransactionOption = [],  # noqa: B006
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    match: Annotated[
        bool, typer.Option("--match", help="Also rules of prefixes and of *.")
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    patterns = _patterns(topic, group, transactional_id, cluster, prefixed)
    filters = _filters(patterns, principal, match=match)

    async def ask(client: "ClusterClient") -> "list[AclBinding]":
        matching = [binding for wanted in filters for binding in await client.acls.describe(wanted)]
        return list(dict.fromkeys(matching))

    matching = ask_cluster(get_bootstrap(ctx, bootstrap), ask)
    _show(matching, "there is no such rule", wants_json(ctx, as_json))


@app.command(help=_REMOVE_HELP)
def remove(
    ctx: typer.Context,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="PRINCIPAL", help="User:name, or User:*.")
    ] = None,
    operation: OperationOption = [],  # noqa: B006
    topic: TopicOption = [],  # noqa: B006
    group: GroupOption = [],  # noqa: B006
    transactional_id: TransactionOption = [],  # noqa: B006
    cluster: ClusterOption = False,
    prefixed: PrefixedOption = False,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="As in the rule.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every rule that there is.")] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    patterns = _patterns(topic, group, transactional_id, cluster, prefixed)
    is_narrow = bool(patterns or principal or operation or host)
    if is_narrow == every:
        fail("say which rules: by resource, --principal, --operation or --host; or --all", 2)
    operations: list[AclOperation | None] = [*map(_read_operation, operation)] or [None]
    filters = [
        wanted._replace(operation=code, host=host)
        for wanted in _filters(patterns, principal, match=False)
        for code in operations
    ]

    async def ask(client: "ClusterClient") -> "list[AclBinding]":
        removed = await client.acls.delete(filters)
        return [binding for bindings in removed.values() for binding in bindings]

    removed = ask_cluster(get_bootstrap(ctx, bootstrap), ask)
    _show(removed, "there is no such rule, so none was removed", wants_json(ctx, as_json))


@app.command("test", help=_TEST_HELP)
def ask_whether(
    ctx: typer.Context,
    principal: Annotated[str, typer.Option("--principal", metavar="PRINCIPAL", help="User:name.")],
    operation: Annotated[
        str, typer.Option("--operation", metavar="OPERATION", help="Such as read.")
    ],
    topic: TopicOption = [],  # noqa: B006
    group: GroupOption = [],  # noqa: B006
    transactional_id: TransactionOption = [],  # noqa: B006
    cluster: ClusterOption = False,
    host: Annotated[
        str, typer.Option("--host", metavar="HOST", help="The address of the client.")
    ] = "127.0.0.1",
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.security.principal import Principal

    patterns = _patterns(topic, group, transactional_id, cluster, False)
    kind, colon, name = principal.partition(":")
    if len(patterns) != 1 or not (kind and colon and name):
        fail("give one resource, and the principal as User:name", 2)
    code = _read_operation(operation)
    decision = ask_cluster(
        get_bootstrap(ctx, bootstrap),
        lambda client: _decide(client, Principal(kind, name), host, code, patterns[0]),
    )
    outcome = "allowed" if decision.is_allowed else "denied"
    rule = None if decision.rule is None else str(decision.rule)
    if wants_json(ctx, as_json):
        show_json({"outcome": outcome, "reason": decision.reason.value, "rule": rule})
    else:
        print(f"{outcome}: {decision.reason.value}{f': {rule}' if rule else ''}")
    if not decision.is_allowed:
        raise typer.Exit(1)


async def _decide(
    client: "ClusterClient",
    principal: Any,
    host: str,
    operation: "AclOperation",
    pattern: "ResourcePattern",
) -> "Decision":
    """By the rules of the cluster and the settings of one broker, with the authorizer's code."""
    from penstock.client.admin_values import ConfigResource
    from penstock.config.broker_authorization import parse_super_users
    from penstock.model.acls import AclFilter
    from penstock.model.admin import ConfigResourceType
    from penstock.security.acl_authorizer import AclAuthorizer, AuthorizerConfig

    names = ("super.users", "allow.everyone.if.no.acl.found")
    bindings = await client.acls.describe(AclFilter())
    cluster = await client.admin.describe_cluster()
    broker = ConfigResource(ConfigResourceType.BROKER, str(min(cluster.brokers)))
    configs = await client.admin.describe_configs([broker], names=names)
    values = {entry.name: entry.value for entry in configs[broker]}
    authorizer = AclAuthorizer(
        AuthorizerConfig(parse_super_users(values[names[0]]), values[names[1]] == "true")
    )
    for resources in {binding.pattern for binding in bindings}:
        authorizer.replace(resources, [entry for kept, entry in bindings if kept == resources])
    return authorizer.decide(principal, host, operation, pattern.resource_type, pattern.name)


def _patterns(
    topics: list[str],
    groups: list[str],
    transactional_ids: list[str],
    cluster: bool,
    prefixed: bool,
) -> "list[ResourcePattern]":
    from penstock.model.acls import CLUSTER_NAME, PatternType, ResourcePattern, ResourceType

    kind = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    named: list[tuple[ResourceType, list[str]]] = [
        (ResourceType.TOPIC, topics),
        (ResourceType.GROUP, groups),
        (ResourceType.TRANSACTIONAL_ID, transactional_ids),
    ]
    patterns = [
        ResourcePattern(resource, name, kind) for resource, names in named for name in names
    ]
    if cluster:
        patterns.append(ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME))
    return patterns


def _filters(
    patterns: "list[ResourcePattern]", principal: str | None, *, match: bool
) -> "list[AclFilter]":
    from penstock.model.acls import AclFilter, PatternType

    if not patterns:
        return [AclFilter(principal=principal)]
    return [
        AclFilter(
            pattern.resource_type,
            pattern.name,
            PatternType.MATCH if match else pattern.pattern_type,
            principal,
        )
        for pattern in patterns
    ]


def _read_operation(text: str) -> "AclOperation":
    from penstock.model.acls import AclOperation, kafka_word

    by_word = {kafka_word(operation).lower(): operation for operation in AclOperation}
    operation = by_word.get(text.replace("-", "").replace("_", "").lower())
    if operation is None:
        fail(f"--operation {text!r}: write one of {_words(AclOperation)}", 2)
    return operation


def _words(members: Iterable[_Member]) -> str:
    from penstock.model.acls import kafka_word

    return ", ".join(map(kafka_word, members))


def _show(bindings: "list[AclBinding]", if_none: str, as_json: bool) -> None:
    from penstock.cli.tables import show_table
    from penstock.model.acls import kafka_word

    rows = [
        {
            "permission": kafka_word(entry.permission).lower(),
            "principal": entry.principal,
            "host": entry.host,
            "operation": kafka_word(entry.operation),
            "resource": kafka_word(pattern.resource_type),
            "name": pattern.name,
            "pattern": pattern.pattern_type.name.lower(),
        }
        for pattern, entry in bindings
    ]
    if as_json:
        show_json(rows)
    elif rows:
        show_table(tuple(rows[0]), [list(row.values()) for row in rows])
    else:
        typer.echo(if_none, err=True)
