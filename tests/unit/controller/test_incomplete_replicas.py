"""Replicas that lost records while their broker was down: elections, and removal of reports."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.controller.cluster import Cluster, node, run_scenario, settled
from tests.unit.controller.states import alive, cluster_state, partition, topic

from penstock.controller.broker_changes import brokers_changed, elect_leaderless, fail_over
from penstock.controller.broker_registration import register_broker
from penstock.controller.broker_reports import read_report, write_report
from penstock.controller.incomplete_replicas import (
    describe_open,
    describe_settled,
    list_reported,
    settle_reports,
)
from penstock.controller.interface import CreatableTopic
from penstock.controller.leader_changes import elect_leaders
from penstock.controller.leader_election import elect_leader
from penstock.controller.state import ClusterState
from penstock.controller.znodes import decode_report, encode_report, report_path
from penstock.metadata_store.errors import DamagedZnode, DataTooLarge
from penstock.metadata_store.interface import NO_SESSION, SetData, Stat, Value
from penstock.model.admin import ElectionType
from penstock.model.broker_report import (
    NEVER_CREATED,
    NO_LOG,
    BrokerReport,
    LogPosition,
    ReportedReplica,
)
from penstock.model.cluster import (
    NO_BROKER,
    BrokerId,
    ControllerEpoch,
    TopicState,
)
from penstock.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition

T0 = TopicPartition("t", 0)
ALL = (1, 2, 3)


def never(_: TopicState) -> bool:
    return False


def always(_: TopicState) -> bool:
    return True


def log_end(offset: int, epoch: int = 4) -> LogPosition:
    return LogPosition(LeaderEpoch(epoch), Offset(offset))


def all_down(in_sync: tuple[int, ...] = ALL, replicas: tuple[int, ...] = ALL) -> ClusterState:
    """The state that a new controller loads while no broker is registered."""
    return cluster_state({}, topic("t", partition(1, in_sync, replicas)))


def report(state: ClusterState, position: LogPosition, version: int = 5) -> BrokerReport:
    replica = ReportedReplica(state.topics["t"].topic_id, position)
    return BrokerReport(incarnation=3, replicas={T0: replica}, version=version)


def register_brokers(
    state: ClusterState,
    *brokers: int,
    lost: Mapping[int, LogPosition] | None = None,
    allows_unclean: bool = False,
) -> ClusterState:
    """Register these brokers in order, each with its report."""
    for broker in brokers:
        position = (lost or {}).get(broker)
        reports = {} if position is None else {BrokerId(broker): report(state, position)}
        live = {**state.brokers, **alive(broker)}
        decision = brokers_changed(state, live, always if allows_unclean else never, reports)
        state = settle_reports(decision).state
    return state


def led(state: ClusterState) -> tuple[int, tuple[int, ...]]:
    part = state.topics["t"].partitions[0]
    return part.leader, part.in_sync


def test_a_replica_without_its_log_waits_for_another_in_sync_replica() -> None:
    state = register_brokers(all_down(), 1, lost={1: NO_LOG})
    assert led(state) == (NO_BROKER, ALL)
    state = register_brokers(state, 3)
    assert led(state) == (3, (3,))
    assert not state.reports


def test_a_short_replica_waits_for_another_in_sync_replica() -> None:
    state = register_brokers(all_down(), 1, 2, lost={1: log_end(400)})
    assert led(state) == (2, (2,))


def test_a_replica_that_lost_records_leaves_the_isr_of_a_leader_that_stayed() -> None:
    before = cluster_state(alive(1, 2, 3), topic("t", partition(1, ALL, ALL)))
    back = {**alive(1, 3), **alive(2, epoch=8)}
    decision = brokers_changed(before, back, never, {BrokerId(2): report(before, NO_LOG)})
    assert led(decision.state) == (1, (1, 3))


def test_after_a_power_failure_of_all_brokers_the_longest_log_leads() -> None:
    lost = {1: log_end(400), 2: log_end(450), 3: log_end(900, epoch=3)}
    state = register_brokers(all_down(), 1, 2, lost=lost)
    assert led(state) == (NO_BROKER, ALL)
    assert led(register_brokers(state, 3, lost=lost)) == (2, (2,))


def test_a_topic_whose_creation_was_interrupted_gets_its_isr() -> None:
    lost = dict.fromkeys(ALL, NEVER_CREATED)
    assert led(register_brokers(all_down(), 1, 2, 3, lost=lost)) == (1, ALL)


@pytest.mark.parametrize("gone", [ALL, (3,)])
@pytest.mark.parametrize("epoch", [0, 4])
def test_a_partition_without_any_log_waits_for_its_disks(gone: tuple[int, ...], epoch: int) -> None:
    """All brokers were started with wrong mounts: empty replicas must not replace the real ones."""
    down = cluster_state({}, topic("t", partition(1, ALL, ALL, epoch=epoch)))
    lost = {broker: NO_LOG if broker in gone else NEVER_CREATED for broker in ALL}
    waiting = register_brokers(down, 1, 2, 3, lost=lost)
    assert led(waiting) == (NO_BROKER, ALL)
    (why,) = describe_open(waiting, [T0])
    disks = " or ".join(map(str, gone))
    assert f"bring the disk of broker {disks} back and restart it, or elect" in why
    forced, _ = elect_leaders(waiting, ElectionType.UNCLEAN, [T0])
    assert led(forced.state) == (1, (1,))
    stopped = brokers_changed(waiting, {}, never).state
    left = {1: log_end(30), 2: log_end(40), 3: log_end(40)}
    assert led(register_brokers(stopped, 1, 2, 3, lost=left)) == (2, (2,))


def test_a_single_replica_without_its_log_leads_empty() -> None:
    state = all_down((1,), (1,))
    assert led(register_brokers(state, 1, lost={1: NO_LOG})) == (1, (1,))


def test_the_only_in_sync_replica_without_its_log_waits_for_an_operator() -> None:
    state = register_brokers(all_down((1,)), 1, 2, 3, lost={1: NO_LOG})
    assert led(state) == (NO_BROKER, (1,))
    decision, results = elect_leaders(state, ElectionType.UNCLEAN, [T0])
    assert results == {T0: None}
    after = settle_reports(decision).state
    assert led(after) == (2, (2,))
    assert not after.reports


def test_the_only_in_sync_replica_that_is_short_leads() -> None:
    assert led(register_brokers(all_down((1,)), 1, 2, lost={1: log_end(7)})) == (1, (1,))


def test_an_operator_elects_an_in_sync_replica_with_a_log_first() -> None:
    state = register_brokers(all_down((1, 2)), 3, 2, lost={2: log_end(7)})
    assert led(state) == (NO_BROKER, (1, 2))
    decision, _ = elect_leaders(state, ElectionType.UNCLEAN, [T0])
    assert led(decision.state) == (2, (2,))


def test_an_operator_can_elect_a_replica_without_a_log_if_there_is_no_other() -> None:
    state = register_brokers(all_down(), 1, lost={1: NO_LOG})
    decision, _ = elect_leaders(state, ElectionType.UNCLEAN, [T0])
    assert led(decision.state) == (1, (1,))


def test_the_preferred_leader_is_not_elected_while_it_is_incomplete() -> None:
    state = register_brokers(all_down(), 1, lost={1: NO_LOG})
    _, results = elect_leaders(state, ElectionType.PREFERRED, [T0])
    assert results[T0] is not None


def test_unclean_election_by_config_takes_a_short_log_but_no_missing_one() -> None:
    down = all_down()
    missing = register_brokers(down, 1, lost={1: NO_LOG}, allows_unclean=True)
    short = register_brokers(down, 1, lost={1: log_end(7)}, allows_unclean=True)
    assert (led(missing), led(short)) == ((NO_BROKER, ALL), (1, (1,)))
    assert led(elect_leaderless(missing, ["t"], always).state) == (NO_BROKER, ALL)


def test_a_new_controller_considers_stored_reports_before_it_elects() -> None:
    down = all_down()
    read = replace(down, brokers=alive(1), reports={BrokerId(1): report(down, NO_LOG)})
    decision = settle_reports(fail_over(read, never))
    assert led(decision.state) == (NO_BROKER, ALL)
    assert list_reported(decision.state) == [T0]


def test_a_report_is_removed_from_its_znode_after_the_election_is_written() -> None:
    state = register_brokers(all_down(), 1, lost={1: NO_LOG})
    live = {**state.brokers, **alive(2)}
    decision = settle_reports(brokers_changed(state, live, never))
    last = decision.writes[-1][0]
    assert isinstance(last, SetData)
    assert (last.path, last.version) == (report_path(1), 5)
    assert decode_report(1, _value(last.data)).replicas == {}
    assert len(decision.writes) == 2


def test_an_election_is_repeated_with_the_same_result_if_reports_were_not_removed() -> None:
    """The controller crashed after the election; all replicas were empty."""
    lost = dict.fromkeys(ALL, NEVER_CREATED)
    down = all_down()
    elected = register_brokers(down, 1, 2, 3, lost=lost)
    reports = {BrokerId(broker): report(down, NEVER_CREATED) for broker in ALL}
    again = fail_over(replace(elected, reports=reports), never)
    assert led(again.state) == (1, ALL)


@pytest.mark.parametrize("change", ["other id", "deleted"])
def test_a_report_of_a_deleted_topic_with_the_same_name_is_ignored(change: str) -> None:
    down = all_down()
    reported = report(down, NO_LOG)
    if change == "deleted":
        after = replace(down, deleting={"t": frozenset()})
    else:
        after = replace(down, topics={"t": replace(down.topics["t"], topic_id=_other_id())})
    decision = settle_reports(brokers_changed(after, alive(1), never, {BrokerId(1): reported}))
    assert not decision.state.reports


def test_messages_say_what_is_lost_and_what_to_do() -> None:
    down = all_down()
    waiting = register_brokers(down, 1, lost={1: NO_LOG})
    (why,) = describe_open(waiting, [T0])
    assert "broker 1: it has no log" in why
    assert "start broker 2 or 3, or bring the disk of broker 1 back and restart it, or" in why
    assert "penstock cluster elect-leaders t-0 --unclean" in why
    decided = brokers_changed(waiting, {**waiting.brokers, **alive(2)}, never)
    (left,) = describe_settled(waiting, decided.state)
    assert "broker 1 has lost records and leaves the ISR" in left
    forced, _ = elect_leaders(waiting, ElectionType.UNCLEAN, [T0])
    (leads,) = describe_settled(waiting, forced.state)
    assert "broker 1 leads although it has lost records" in leads


def test_a_report_survives_a_round_trip() -> None:
    replicas = {
        TopicPartition("a", 0): ReportedReplica(_other_id(), NO_LOG),
        TopicPartition("a", 7): ReportedReplica(_other_id(), log_end(0, epoch=-1)),
        TopicPartition("b", 2): ReportedReplica(_other_id(), log_end(9)),
    }
    stored = BrokerReport(incarnation=12, replicas=replicas, version=4)
    assert decode_report(1, _value(encode_report(stored), version=4)) == stored


def many_topics(count: int, *, name_bits: int = 20) -> dict[TopicPartition, ReportedReplica]:
    random = Random(count)
    return {
        TopicPartition(f"t.{number}.{random.getrandbits(name_bits):x}", 0): ReportedReplica(
            TopicId(UUID(int=random.getrandbits(128))), NO_LOG
        )
        for number in range(count)
    }


def test_the_report_of_a_replaced_disk_with_many_topics_fits_into_a_request() -> None:
    async def scenario(cluster: Cluster) -> None:
        session, lost = cluster.sessions[0], many_topics(14_000)
        await write_report(session, BrokerId(1), lambda old: replace(old, replicas=lost))
        stored = await read_report(session, BrokerId(1))
        assert stored.replicas == lost
        few = dict(list(lost.items())[:1000])
        await write_report(session, BrokerId(1), lambda old: replace(old, replicas=few))
        value = await session.get(report_path(1))
        assert json.loads(value.data)["incomplete"].keys() == {tp.topic for tp in few}

    run_scenario(scenario)


def test_a_report_that_is_too_large_says_what_to_do() -> None:
    async def scenario(cluster: Cluster) -> None:
        lost = many_topics(9000, name_bits=900)
        with pytest.raises(DataTooLarge, match=r"9000 replicas of broker 1 .* cluster reassign"):
            await write_report(
                cluster.sessions[0], BrokerId(1), lambda old: replace(old, replicas=lost)
            )

    run_scenario(scenario)


@pytest.mark.parametrize("data", [b"", b"plain", zlib.compress(b"{}")[:-7], zlib.compress(b"[]")])
def test_a_report_that_does_not_decompress_is_damaged(data: bytes) -> None:
    with pytest.raises(DamagedZnode, match=report_path(1)):
        decode_report(1, _value(data))


POSITIONS = st.one_of(
    st.sampled_from([NO_LOG, NEVER_CREATED]),
    st.builds(log_end, st.integers(0, 3), st.integers(0, 2)),
)


@given(
    in_sync=st.sets(st.sampled_from(ALL), min_size=1),
    live=st.sets(st.sampled_from(ALL)),
    incomplete=st.dictionaries(st.sampled_from(ALL), POSITIONS),
)
def test_an_incomplete_replica_leads_only_if_every_in_sync_replica_is_incomplete(
    in_sync: set[int], live: set[int], incomplete: dict[int, LogPosition]
) -> None:
    reported = {BrokerId(b): position for b, position in incomplete.items() if b in live}
    before = partition(NO_BROKER, tuple(sorted(in_sync)), ALL)
    after = elect_leader(
        before,
        live=frozenset(map(BrokerId, live)),
        stayed=frozenset(),
        incomplete=reported,
        allows_unclean=lambda: False,
        controller_epoch=ControllerEpoch(9),
    )
    leader = NO_BROKER if after is None else after.leader
    whole = {broker for broker in in_sync & live if broker not in reported}
    if whole:
        assert leader in whole
    elif leader != NO_BROKER:
        assert in_sync <= reported.keys()
        assert reported[leader] == max(reported[BrokerId(broker)] for broker in in_sync)
    else:
        assert in_sync - reported.keys() or not any(
            reported[BrokerId(broker)].has_records for broker in in_sync
        )


def test_the_controller_does_not_elect_a_replica_that_its_broker_reported() -> None:
    """Two brokers were down, and the one without its log registers first."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.join(1)
        async with cluster.controlled(0) as controller:
            new = CreatableTopic(name="t", partitions=1, replication_factor=2)
            [created] = await controller.create_topics([new], validate_only=False, timeout_ms=9999)
            assert isinstance(created, TopicState)
        for broker in (0, 1):
            await cluster.leave(broker)
        session = cluster.sessions[1] = await cluster.store.open_session()
        lost = {T0: ReportedReplica(created.topic_id, NO_LOG)}
        await write_report(session, BrokerId(1), lambda old: replace(old, replicas=lost))
        await register_broker(session, node(1), now_ms=0)
        async with cluster.controlled(1) as controller:
            state = controller.find_state()
            assert state is not None
            assert led(state)[0] == NO_BROKER
            assert any("t-0 has no leader" in text for text in cluster.reports)
            await cluster.join(0)
            await settled()
            state = controller.find_state()
            assert state is not None
            assert led(state) == (0, (0,))
            assert (await read_report(session, BrokerId(1))).replicas == {}

    run_scenario(scenario)


def _other_id() -> TopicId:
    return topic("another", partition(1, ALL, ALL)).topic_id


def _value(data: bytes, version: int = 0) -> Value:
    return Value(data, Stat(0, 0, 0, 0, 0, version, 0, NO_SESSION, 0, 0))
