"""Log events of what a decision changes in the cluster: brokers, leaders, ISRs, reassignments,
topics, configs.

Pure: compares the states before and after. One event sums up all partitions of a decision. An ISR
that its leader has proposed is logged by that leader, not here. No value of a secret setting, or
of an unknown one, gets into an event.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from penstock.config.registry import find_setting
from penstock.config.setting import SettingScope
from penstock.controller.state import ClusterState
from penstock.logs.levels import INFO, WARNING
from penstock.model.cluster import NO_BROKER, BrokerId, PartitionState
from penstock.model.ids import TopicPartition

MAX_NAMED = 10  # partitions, topics or settings that an event names; the others it counts
HIDDEN = "[hidden]"


class ChangeEvent(NamedTuple):
    level: int
    event: str
    message: str
    fields: dict[str, object]
    changed: str | None = None  # what a client has changed: such events are rate-limited


class _PartitionChange(NamedTuple):
    tp: TopicPartition
    old: PartitionState
    new: PartitionState


def list_changes(
    before: ClusterState, after: ClusterState, reason: str, *, is_of_leader: bool = False
) -> list[ChangeEvent]:
    """`is_of_leader`: a leader has proposed the ISRs and logs them."""
    partitions = list(_changed_partitions(before, after))
    return [
        *_broker_events(before, after),
        *_leader_events(partitions, reason),
        *(() if is_of_leader else _isr_events(partitions, reason)),
        *_reassignment_events(partitions),
        *_topic_events(before, after),
        *_config_events(before, after),
    ]


def find_absent(state: ClusterState) -> list[BrokerId]:
    """Brokers that lead or are in sync as stored, but are not registered: nobody has noticed yet
    that they left."""
    members = {
        broker
        for topic in state.topics.values()
        for partition in topic.partitions
        for broker in (partition.leader, *partition.in_sync)
    }
    return sorted(members - state.brokers.keys() - {NO_BROKER})


def broker_left(broker: BrokerId, reason: str) -> ChangeEvent:
    return ChangeEvent(
        INFO, "broker_left", f"broker {broker} left: {reason}", {"id": broker, "reason": reason}
    )


def _changed_partitions(before: ClusterState, after: ClusterState) -> Iterator[_PartitionChange]:
    """Topics that the decision leaves alone are the same objects."""
    if before.topics is after.topics:
        return
    for name, topic in after.topics.items():
        earlier = before.topics.get(name)
        if earlier is None or earlier is topic or earlier.topic_id != topic.topic_id:
            continue
        pairs = zip(earlier.partitions, topic.partitions, strict=False)
        for number, (old, new) in enumerate(pairs):
            if old is not new:
                yield _PartitionChange(TopicPartition(name, number), old, new)


def _broker_events(before: ClusterState, after: ClusterState) -> Iterator[ChangeEvent]:
    if before.brokers is after.brokers:
        return
    for broker in sorted(before.brokers.keys() - after.brokers.keys()):
        is_planned = broker in before.shutting_down
        yield broker_left(
            broker, "controlled shutdown" if is_planned else "its registration has ended"
        )
    for broker, node in sorted(after.brokers.items()):
        earlier = before.brokers.get(broker)
        if earlier is None or earlier.epoch != node.epoch:
            text = "joined" if earlier is None else "registered again"
            fields: dict[str, object] = {"id": broker, "broker_epoch": node.epoch}
            yield ChangeEvent(INFO, "broker_joined", f"broker {broker} {text}", fields)


def _leader_events(changes: Sequence[_PartitionChange], reason: str) -> Iterator[ChangeEvent]:
    elected = [change for change in changes if change.old.leader != change.new.leader]
    unclean = [
        change.tp
        for change in elected
        if change.new.leader != NO_BROKER
        and change.old.in_sync
        and change.new.leader not in change.old.in_sync
    ]
    if unclean:
        yield ChangeEvent(
            WARNING,
            "unclean_leader_election",
            f"{len(unclean)} partitions got a leader that was not in sync; records may be lost",
            {**_name(unclean), "reason": reason},
        )
    if elected:
        leaders = Counter(change.new.leader for change in elected)
        offline = leaders.pop(NO_BROKER, 0)
        fields: dict[str, object] = {
            **_name(change.tp for change in elected),
            "leaders": [f"{leader}:{count}" for leader, count in sorted(leaders.items())],
            "offline": offline,
            "reason": reason,
        }
        text = f"{len(elected)} partitions changed their leader"
        yield ChangeEvent(WARNING if offline else INFO, "leaders_changed", text, fields)


def _isr_events(changes: Sequence[_PartitionChange], reason: str) -> Iterator[ChangeEvent]:
    for event, verb, one, other in (
        ("isr_shrunk", "left", "old", "new"),
        ("isr_expanded", "joined", "new", "old"),
    ):
        of_broker: dict[BrokerId, list[TopicPartition]] = {}
        for change in changes:
            more: PartitionState = getattr(change, one)
            fewer: PartitionState = getattr(change, other)
            for broker in more.in_sync:
                if broker not in fewer.in_sync:
                    of_broker.setdefault(broker, []).append(change.tp)
        for broker, tps in sorted(of_broker.items()):
            text = f"broker {broker} {verb} the ISR of {len(tps)} partitions"
            fields = {"replicas": [broker], **_name(tps), "reason": reason}
            yield ChangeEvent(INFO, event, text, fields)


def _reassignment_events(changes: Sequence[_PartitionChange]) -> Iterator[ChangeEvent]:
    begun = [change for change in changes if _target(change.new) and not _target(change.old)]
    changed = [
        change
        for change in changes
        if _target(change.new) and _target(change.old) not in ((), _target(change.new))
    ]
    done = [change for change in changes if _target(change.old) and not _target(change.new)]
    for event, text, some in (
        ("reassignment_started", "a reassignment has begun", begun),
        ("reassignment_changed", "a reassignment has another target", changed),
        ("reassignment_finished", "a reassignment is finished", done),
    ):
        for change in some[:MAX_NAMED]:
            fields: dict[str, object] = {
                "partition": change.tp,
                "replicas": change.new.replicas,
                "adding": change.new.adding,
                "removing": change.new.removing,
            }
            yield ChangeEvent(INFO, event, f"{change.tp}: {text}", fields)
        if len(some) > MAX_NAMED:
            yield ChangeEvent(
                INFO,
                event,
                f"the same for {len(some) - MAX_NAMED} more partitions",
                _name(change.tp for change in some[MAX_NAMED:]),
            )


def _target(partition: PartitionState) -> tuple[BrokerId, ...]:
    """Empty if the partition is not being reassigned."""
    if not (partition.adding or partition.removing):
        return ()
    return tuple(replica for replica in partition.replicas if replica not in partition.removing)


def _topic_events(before: ClusterState, after: ClusterState) -> Iterator[ChangeEvent]:
    if before.topics is not after.topics:
        created = [name for name in after.topics if name not in before.topics]
        yield from _sum_topics("topics_created", "created", created)
    if before.deleting is not after.deleting:
        deleting = [name for name in after.deleting if name not in before.deleting]
        yield from _sum_topics("topics_deleted", "being deleted", deleting)


def _sum_topics(event: str, verb: str, names: list[str]) -> Iterator[ChangeEvent]:
    if names:
        fields: dict[str, object] = {"count": len(names), "topics": names[:MAX_NAMED]}
        yield ChangeEvent(INFO, event, f"{verb}: {len(names)} topics", fields, names[0])


def _config_events(before: ClusterState, after: ClusterState) -> Iterator[ChangeEvent]:
    if before.topics is not after.topics:
        for name, topic in after.topics.items():
            earlier = before.topics.get(name)
            if earlier is not None and earlier is not topic:
                yield from _config_event("topic", name, earlier.configs, topic.configs)
    for kind, old, new in (
        ("broker", before.broker_configs, after.broker_configs),
        ("group", before.group_configs, after.group_configs),
    ):
        if old is not new:
            for name in sorted(old.keys() | new.keys()):
                yield from _config_event(kind, name, old.get(name, {}), new.get(name, {}))
    if before.client_configs is not after.client_configs:
        yield from _client_config_events(before, after)


def _client_config_events(before: ClusterState, after: ClusterState) -> Iterator[ChangeEvent]:
    """Also of those that are read at the election. No value is named, and no credential."""
    for entity, configs in after.client_configs.items():
        if before.client_configs.get(entity) != configs:
            names = sorted(name for name in configs if not name.startswith("SCRAM-"))[:MAX_NAMED]
            if not names:
                continue
            yield ChangeEvent(
                INFO,
                "client_configs_read",
                f"{entity} has {', '.join(names)}",
                {"entity": str(entity), "names": names},
                str(entity),
            )
    for entity in before.client_configs.keys() - after.client_configs.keys():
        yield ChangeEvent(
            INFO,
            "client_configs_deleted",
            f"the configs of {entity} are deleted",
            {"entity": str(entity)},
            str(entity),
        )


def _config_event(
    kind: str, name: str, old: Mapping[str, str], new: Mapping[str, str]
) -> Iterator[ChangeEvent]:
    if old is new or old == new:
        return
    changed = sorted(key for key in new if new[key] != old.get(key))
    deleted = sorted(key for key in old if key not in new)
    fields: dict[str, object] = {
        "resource": kind,
        "name": name or "(all brokers)",
        "set": [f"{key}={_show(kind, key, new[key])}" for key in changed[:MAX_NAMED]],
        "deleted": deleted[:MAX_NAMED],
    }
    text = (
        f"the configs of {kind} {name!r} have changed"
        if name
        else "the configs of all brokers have changed"
    )
    yield ChangeEvent(INFO, "config_changed", text, fields, f"{kind} {name}")


def _show(kind: str, key: str, value: str) -> str:
    """An unknown setting may be a secret of another program."""
    setting = find_setting(key, SettingScope(kind))
    return HIDDEN if setting is None or setting.sensitive else value


def _name(partitions: Iterable[TopicPartition]) -> dict[str, object]:
    tps = list(partitions)
    return {"count": len(tps), "partitions": tps[:MAX_NAMED]}
