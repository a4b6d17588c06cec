"""Any request gets a response, because an exception would reload all groups of the shard."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled
from tests.unit.coordinators.group.consumer_harness import (
    GROUP,
    Consumer,
    ConsumerGroupHarness,
    durable,
    replay_log,
)
from tests.unit.coordinators.group.mixed_members import ClassicConsumer

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.requests import ConsumerHeartbeat
from penstock.coordinators.group.records import TopicPartitions
from penstock.coordinators.group.requests import (
    Heartbeat,
    JoinGroup,
    LeavingMember,
    MemberProtocol,
    SyncGroup,
)
from penstock.model.ids import TopicId

INT32 = st.one_of(st.integers(-3, 4), st.sampled_from([-(2**31), 2**31 - 1]))
NAMES = st.sampled_from(["", "anna", "bob", "é", "x" * 32_767, "x" * 32_768, "\0"])
MAYBE = st.one_of(st.none(), NAMES)
PARTITIONS = st.builds(
    TopicPartitions,
    st.integers(0, 3).map(lambda number: TopicId(UUID(int=number))),
    st.lists(INT32, max_size=3).map(tuple),
)
HEARTBEATS = st.builds(
    ConsumerHeartbeat,
    group=st.just(GROUP),
    member=NAMES,
    member_epoch=INT32,
    client_id=NAMES,
    client_host=st.just("/10.0.0.1"),
    instance=MAYBE,
    rack=MAYBE,
    rebalance_timeout_ms=st.one_of(st.none(), INT32),
    topics=st.one_of(st.none(), st.lists(st.sampled_from(["orders", "", "x" * 300])).map(tuple)),
    topic_regex=st.one_of(st.none(), st.text("ab(){}[]*+?|^$\\.", max_size=9)),
    assignor=st.sampled_from([None, "range", "uniform", "other", ""]),
    owned=st.one_of(st.none(), st.lists(PARTITIONS, max_size=3).map(tuple)),
    requires_member=st.booleans(),
)
METADATA = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0\0\0\0\0\0\0"]),
)
JOINS = st.builds(
    JoinGroup,
    group=st.just(GROUP),
    member=st.sampled_from(["", "anna", "bob"]),
    instance=st.sampled_from([None, "one", "anna"]),
    client_id=st.just("app"),
    client_host=st.just("/10.0.0.1"),
    session_timeout_ms=st.sampled_from([-1, 6000, 2**31 - 1]),
    rebalance_timeout_ms=INT32,
    protocol_type=st.sampled_from(["consumer", "connect", ""]),
    protocols=st.lists(st.builds(MemberProtocol, st.sampled_from(["range", "a"]), METADATA)).map(
        tuple
    ),
    requires_known_member=st.booleans(),
)
SYNCS = st.builds(
    SyncGroup,
    group=st.just(GROUP),
    member=NAMES,
    instance=MAYBE,
    generation=INT32,
    protocol_type=MAYBE,
    protocol=MAYBE,
)
BEATS = st.builds(Heartbeat, group=st.just(GROUP), member=NAMES, instance=MAYBE, generation=INT32)
LEAVERS = st.builds(LeavingMember, NAMES, MAYBE)


def send(harness: ConsumerGroupHarness, request: object) -> None:
    state, now_ms = harness.state, harness.now_ms
    if isinstance(request, ConsumerHeartbeat):
        harness.heartbeat(request)
    elif isinstance(request, JoinGroup):
        harness.ask(lambda waiter: state.join(request, waiter, now_ms), lambda reply: None)
    elif isinstance(request, SyncGroup):
        harness.ask(lambda waiter: state.sync(request, waiter, now_ms), lambda reply: None)
    elif isinstance(request, Heartbeat):
        harness.carry_out(state.heartbeat(request, now_ms))
    else:
        assert isinstance(request, LeavingMember)
        harness.carry_out(state.leave(GROUP, [request], now_ms))


@given(
    requests=st.lists(st.one_of(HEARTBEATS, JOINS, SYNCS, BEATS, LEAVERS), max_size=15),
    begins_mixed=st.booleans(),
)
@settings(max_examples=scaled(test=200, verify=1000, release=20_000), deadline=None)
def test_any_request_gets_a_reply(requests: list[object], begins_mixed: bool) -> None:
    harness = ConsumerGroupHarness(GroupConfig(initial_rebalance_delay_ms=0), orders=2)
    if begins_mixed:
        Consumer(harness, "anna").join()
        ClassicConsumer(harness, "bob").join()
    for request in requests:
        send(harness, request)
        harness.pass_time(100)
    assert durable(replay_log(harness.log)) == durable(harness.groups)
    harness.pass_time(2**31)
