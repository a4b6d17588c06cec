"""`penstock topic`: create, list, describe, alter and delete topics of a running cluster."""

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
    from penstock.client.admin_values import CreatedTopic
    from penstock.client.cluster import ClusterClient
    from penstock.client.replica_descriptions import ReplicaDescription
    from penstock.client.topic_descriptions import PartitionDescription, TopicDescription

app = command_group("Create, list, describe, alter and delete topics.")

PARTITION_COLUMNS = (
    "partition",
    "leader",
    "epoch",
    "replicas",
    "in sync",
    "log start",
    "high watermark",
    "log end",
    "bytes",
)
REPLICA_COLUMNS = (
    "partition",
    "broker",
    "state",
    "log start",
    "high watermark",
    "log end",
    "behind",
    "behind for",
    "bytes",
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The topic name.")]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config", metavar="NAME=VALUE", help="A topic config by Kafka's name. Repeatable."
    ),
]

_CREATE_HELP = """Create a topic.

With --half the topics for half messages are made beside it: NAME.half, NAME.half.decisions,
NAME.half.expired and, for each group of producers, GROUP.half.checks (docs/half_messages.md). A
topic that exists already gets them, too.

\b
Examples:
  penstock topic create orders --half --half-group shop
  penstock topic create orders --partitions 6
  penstock topic create audit --config retention.ms=604800000 --config cleanup.policy=compact
  penstock --bootstrap broker1:9092 topic create orders --replication-factor 3
"""

_LIST_HELP = """List the topics of the cluster, except internal ones.

\b
Examples:
  penstock topic list
  penstock topic list --internal
  penstock topic list --json | jq -r '.[].name'
"""

_DESCRIBE_HELP = """Show a topic's partitions and configs.

For every partition: the leader, the replicas, those in sync (ISR), the log start offset, the high
watermark (consumers read up to it) and the log end offset (the leader has written up to it). With
several replicas, the same for each of them, with the records that it is behind its leader and for
how long. A broker that is frozen or gone does not answer, and is shown as its leader knows it.

\b
Examples:
  penstock topic describe orders
  penstock topic describe orders --json | jq '.partitions[].replicas[] | select(.behind > 0)'
  penstock topic describe orders --json | jq '.partitions[] | .high_watermark - .log_start_offset'
"""

_ALTER_HELP = """Add partitions to a topic, or change its configs.

Partitions can be added, never removed. Afterwards, a key may belong to another partition.

\b
Examples:
  penstock topic alter orders --partitions 12
  penstock topic alter orders --config retention.ms=3600000
  penstock topic alter orders --delete-config retention.ms
"""

_DELETE_HELP = """Delete a topic and all its records. This cannot be undone.

\b
Examples:
  penstock topic delete orders
  penstock topic delete orders --if-exists
"""


@app.command(help=_CREATE_HELP)
def create(
    ctx: typer.Context,
    name: NameArgument,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", min=1, help="Number of partitions.  [default: the cluster's]"),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=1,
            help="Replicas of each partition.  [default: the cluster's]",
        ),
    ] = None,
    config: ConfigOption = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Succeed if the topic exists already.")
    ] = False,
    half: Annotated[
        bool, typer.Option("--half", help="Also make the topics for half messages.")
    ] = False,
    half_group: Annotated[
        list[str] | None,
        typer.Option(
            "--half-group",
            metavar="GROUP",
            help="A group of producers whose half messages it takes. Repeatable.  "
            "[default: the topic's name]",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    configs = parse_pairs("--config", config or [])
    if half_group and not half:
        fail("--half-group needs --half", 2)
    without_effect: dict[str, str] = {}

    async def work(client: "ClusterClient") -> "CreatedTopic | None":
        from penstock.cli.settings_without_effect import find_without_effect
        from penstock.client.admin_values import ConfigResource, NewTopic
        from penstock.client.errors import RefusedByBroker
        from penstock.model.errors import ErrorCode

        topic = NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=configs,
        )
        try:
            created = (await client.admin.create_topics([topic]))[name]
        except RefusedByBroker as error:
            if (if_not_exists or half) and error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                return None
            raise
        without_effect.update(
            await find_without_effect(client, ConfigResource.topic(name), configs)
        )
        return created

    created = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    _warn(without_effect)
    if half:
        from penstock.cli.half_topics import create_half_topics

        ask_cluster(
            get_bootstrap(ctx, bootstrap),
            lambda client: create_half_topics(client, name, half_group or [name]),
        )
    if wants_json(ctx, as_json):
        show_json(_created_json(name, created))
    elif created is None:
        print(f"topic {name} exists already")
    else:
        print(f"created topic {name}{_size_text(created)}")


def _created_json(name: str, created: "CreatedTopic | None") -> dict[str, object]:
    if created is None:
        return {"name": name, "created": False}
    return {
        "name": name,
        "created": True,
        "topic_id": None if created.topic_id is None else str(created.topic_id),
        "partitions": created.partitions,
        "replication_factor": created.replication_factor,
    }


def _size_text(created: "CreatedTopic") -> str:
    if created.partitions is None:
        return ""  # the cluster's defaults, which it does not return
    plural = "" if created.partitions == 1 else "s"
    return (
        f": {created.partitions} partition{plural}, replication factor {created.replication_factor}"
    )


@app.command("list", help=_LIST_HELP)
def list_topics(
    ctx: typer.Context,
    internal: Annotated[bool, typer.Option("--internal", help="Include internal topics.")] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    from penstock.cli.tables import show_table

    metadata = ask_cluster(get_bootstrap(ctx, bootstrap), lambda client: client.metadata())
    topics = [
        {
            "name": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
            "internal": topic.is_internal,
        }
        for _, topic in sorted(metadata.topics.items())
        if internal or not topic.is_internal
    ]
    if wants_json(ctx, as_json):
        show_json(topics)
    elif topics:
        columns = ("name", "partitions", "replication_factor")
        show_table(
            ("topic", "partitions", "replication"),
            [[topic[column] for column in columns] for topic in topics],
        )
    else:
        typer.echo("there are no topics yet: `penstock topic create NAME` creates one", err=True)


@app.command(help=_DESCRIBE_HELP)
def describe(
    ctx: typer.Context,
    name: NameArgument,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    async def work(client: "ClusterClient") -> "TopicDescription":
        from penstock.client.topic_descriptions import describe_topics

        topic = (await client.metadata([name])).topics[name]
        topic.check()
        return (await describe_topics(client, [topic]))[name]

    description = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        show_json(description.as_json())
    else:
        _show_description(description)


def _show_description(description: "TopicDescription") -> None:
    from penstock.cli.tables import show_table

    print(f"topic {description.name}")
    print(f"id    {description.topic_id or '-'}")
    for setting, value in description.configs.items():
        print(f"set   {setting}={value}")
    print()
    show_table(PARTITION_COLUMNS, [_partition_row(one) for one in description.partitions])
    replicas = [
        _replica_row(partition.partition, replica)
        for partition in description.partitions
        for replica in partition.replicas
    ]
    if any(partition.has_followers for partition in description.partitions):
        print()
        show_table(REPLICA_COLUMNS, replicas)


def _partition_row(partition: "PartitionDescription") -> list[object]:
    return [
        partition.partition,
        partition.leader,
        partition.leader_epoch,
        ",".join(str(replica.broker) for replica in partition.replicas),
        ",".join(str(broker) for broker in partition.in_sync),
        partition.log_start_offset,
        partition.high_watermark,
        partition.log_end_offset,
        partition.size_bytes,
    ]


def _replica_row(partition: int, replica: "ReplicaDescription") -> list[object]:
    return [
        partition,
        replica.broker,
        replica.state,
        replica.log_start_offset,
        replica.high_watermark,
        replica.log_end_offset,
        replica.behind,
        None if replica.behind_ms is None else f"{replica.behind_ms / 1000:.1f} s",
        replica.size_bytes,
    ]


@app.command(help=_ALTER_HELP)
def alter(
    ctx: typer.Context,
    name: NameArgument,
    partitions: Annotated[
        int | None, typer.Option("--partitions", min=1, help="New total number of partitions.")
    ] = None,
    config: ConfigOption = None,
    delete_config: Annotated[
        list[str] | None,
        typer.Option(
            "--delete-config",
            metavar="NAME",
            help="Reset this config to its default. Repeatable.",
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    configs = parse_pairs("--config", config or [])
    if partitions is None and not configs and not delete_config:
        fail("nothing to alter: give --partitions, --config or --delete-config", 2)

    names = {*configs, *(delete_config or [])}

    async def work(client: "ClusterClient") -> dict[str, str]:
        from penstock.cli.settings_without_effect import find_without_effect
        from penstock.client.admin_values import AlterConfigOp, ConfigResource
        from penstock.model.admin import ConfigOperation

        changes = [AlterConfigOp(setting, value) for setting, value in configs.items()]
        changes += [
            AlterConfigOp(setting, None, ConfigOperation.DELETE) for setting in delete_config or []
        ]
        if changes:
            topic = ConfigResource.topic(name)
            await client.admin.incremental_alter_configs({topic: changes})
        if partitions is not None:
            await client.admin.create_partitions({name: partitions})
        return await find_without_effect(client, ConfigResource.topic(name), names)

    without_effect = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    is_altered = partitions is not None or bool(names - without_effect.keys())
    _warn(without_effect)
    if wants_json(ctx, as_json):
        show_json({"name": name, "altered": is_altered, "without_effect": without_effect})
    elif is_altered:
        print(f"altered topic {name}")
    else:
        print(f"topic {name} is unchanged")


def _warn(without_effect: dict[str, str]) -> None:
    if without_effect:
        from penstock.cli.settings_without_effect import warn

        warn(without_effect)


@app.command(help=_DELETE_HELP)
def delete(
    ctx: typer.Context,
    name: NameArgument,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Succeed if the topic does not exist.")
    ] = False,
    bootstrap: BootstrapOption = None,
    as_json: JsonOption = False,
) -> None:
    async def work(client: "ClusterClient") -> bool:
        from penstock.client.errors import RefusedByBroker
        from penstock.model.errors import ErrorCode

        try:
            await client.admin.delete_topics([name])
        except RefusedByBroker as error:
            if if_exists and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise
        return True

    was_there = ask_cluster(get_bootstrap(ctx, bootstrap), work)
    if wants_json(ctx, as_json):
        show_json({"name": name, "deleted": was_there})
    else:
        print(f"deleted topic {name}" if was_there else f"topic {name} does not exist")
