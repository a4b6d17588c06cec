"""Whatever members of the newer protocol do in whatever order: no partition has two owners.

Answers get lost, members are slow to give up and to take, go silent, come back under another id;
topics come, grow and go; the broker restarts. When all is quiet, everybody has its share, and the
state is what its log gives, whole or compacted up to any place.
"""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.profile import scaled
from tests.unit.coordinators.group.consumer_desk import (
    REBALANCE_MS,
    Consumer,
    ConsumerDesk,
    compacted,
    durable,
    replayed,
)

from penstock.coordinators.group.config import GroupConfig
from penstock.coordinators.group.consumer.partitions import (
    NOTHING,
    Partitions,
    common,
    from_topics,
    overlap,
    to_topics,
    together,
)
from penstock.coordinators.group.consumer.requests import (
    JOIN_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
)
from penstock.coordinators.group.consumer.state import ConsumerGroup, ConsumerState
from penstock.model.errors import ErrorCode

PLACES = st.integers(0, 5)
WISHES: st.SearchStrategy[tuple[tuple[str, ...] | None, str | None]] = st.sampled_from(
    [
        (("orders",), None),
        (("orders", "bills"), None),
        (("bills", "nowhere"), None),
        (None, "b.*|orders"),
        (("orders",), "notes.*"),
    ]
)
TOPICS = st.sampled_from(["orders", "bills", "notes-1", "notes-2"])
DELAYS_MS = st.sampled_from([1000, 20_000, 44_999, 45_000, REBALANCE_MS])


class SlowConsumer(Consumer):
    """Gives up and takes what it was told when it comes to it, and not always hears an answer."""

    told: Partitions = NOTHING
    is_unsure: bool = False  # an answer was lost: it says everything again
    sent: list[ConsumerHeartbeat]

    def take(self, answer: ConsumerHeartbeatReply) -> None:
        self.answer = answer
        if answer.error is ErrorCode.NONE:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.told = from_topics(answer.assignment)
        else:
            self.forget()

    def forget(self) -> None:
        """It was fenced, or left: it works on nothing."""
        self.epoch, self.owned, self.told, self.is_unsure = JOIN_EPOCH, {}, NOTHING, False

    def give_up(self) -> None:
        self.owned = common(self.owned, self.told)

    def take_up(self) -> None:
        self.give_up()
        self.owned = together(self.owned, self.told)

    def speak(self, *, is_heard: bool = True) -> None:
        fields: dict[str, object] = {"owned": to_topics(self.owned)}
        if self.epoch == JOIN_EPOCH or self.is_unsure:
            wishes = {"topics": self.topics, "topic_regex": self.regex, "assignor": self.assignor}
            fields |= wishes | {"rebalance_timeout_ms": REBALANCE_MS}
        request = self.request(**fields)
        self.sent.append(request)
        answer = self.desk.heartbeat(request)
        self.is_unsure = not is_heard
        if is_heard:
            self.take(answer)


class AnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ids = itertools.count(1)
        self.consumers: list[SlowConsumer] = []

    @initialize(
        wishes=st.lists(WISHES, min_size=6, max_size=6),
        assignors=st.lists(st.sampled_from([None, "range"]), min_size=6, max_size=6),
    )
    def begin(
        self,
        wishes: list[tuple[tuple[str, ...] | None, str | None]],
        assignors: list[str | None],
    ) -> None:
        self.desk = ConsumerDesk(GroupConfig(), orders=3, bills=2)
        for place, ((topics, regex), assignor) in enumerate(zip(wishes, assignors, strict=True)):
            instance = f"instance-{place}" if place >= 4 else None
            made = SlowConsumer(self.desk, self._new_id(), topics, regex, instance, assignor)
            made.sent = []
            self.consumers.append(made)

    def _new_id(self) -> str:
        return f"member-{next(self.ids)}"

    # -- what members do -------------------------------------------------------------------

    @rule(place=PLACES)
    def speaks(self, place: int) -> None:
        self.consumers[place].speak()

    @rule(place=PLACES)
    def speaks_and_takes_up(self, place: int) -> None:
        self.consumers[place].speak()
        self.consumers[place].take_up()

    @rule(place=PLACES)
    def speaks_and_hears_nothing(self, place: int) -> None:
        self.consumers[place].speak(is_heard=False)

    @rule(place=PLACES)
    def gives_up(self, place: int) -> None:
        self.consumers[place].give_up()

    @rule(place=PLACES)
    def takes_up(self, place: int) -> None:
        self.consumers[place].take_up()

    @rule(place=PLACES, wishes=WISHES)
    def wants_something_else(
        self, place: int, wishes: tuple[tuple[str, ...] | None, str | None]
    ) -> None:
        who = self.consumers[place]
        who.topics, regex = wishes
        who.regex, who.is_unsure = regex or "", True
        who.topics = who.topics or ()
        who.speak()

    @rule(place=PLACES)
    def leaves(self, place: int) -> None:
        who = self.consumers[place]
        who.leave()
        who.forget()

    @rule(place=st.integers(4, 5))
    def restarts(self, place: int) -> None:
        """A static member goes for a while and comes back under another id."""
        who = self.consumers[place]
        who.pause()
        who.forget()
        who.id = self._new_id()

    @rule(place=st.integers(0, 3))
    def starts_over(self, place: int) -> None:
        """A dynamic member dies, and its process begins anew."""
        who = self.consumers[place]
        who.forget()
        who.id = self._new_id()

    # -- what happens to them --------------------------------------------------------------

    @rule(place=PLACES, back=st.integers(1, 8))
    def an_old_request_arrives_again(self, place: int, back: int) -> None:
        """Over a connection that its sender gave up; what it says was true once."""
        sent = self.consumers[place].sent[-back:]
        members = self.desk.group.members if isinstance(self.desk.group, ConsumerGroup) else {}
        known = members.get(sent[0].member) if sent else None
        epoch = sent[0].member_epoch if sent else JOIN_EPOCH
        if sent and (epoch == JOIN_EPOCH or known is None or epoch < known.epoch):
            self.desk.heartbeat(sent[0])

    @rule(delay_ms=DELAYS_MS)
    def time_passes(self, delay_ms: int) -> None:
        self.desk.pass_time(delay_ms)

    @rule(topic=TOPICS, partitions=st.integers(1, 5))
    def topic_is_made_or_grows(self, topic: str, partitions: int) -> None:
        known = self.desk.topics.find(topic)
        if known is None:
            self.desk.topics.create(topic, partitions)
        elif known.partitions < partitions:
            self.desk.topics.grow(topic, partitions)
        self.desk.change_topics()

    @rule(topic=TOPICS)
    def topic_is_deleted(self, topic: str) -> None:
        if self.desk.topics.find(topic) is not None:
            self.desk.topics.delete(topic)
        self.desk.change_topics()

    @rule()
    def broker_restarts(self) -> None:
        self.desk.restart()

    @rule()
    def all_is_quiet(self) -> None:
        for who in self.consumers:
            who.is_unsure = True  # an old request may have taken its wishes back
        for delay_ms in (20_000, 20_000, 20_000, *itertools.repeat(0, 8)):
            for who in self.consumers:
                who.speak()
                who.take_up()
            self.desk.pass_time(delay_ms)  # until those who died are given up
        assert self.desk.living.state is ConsumerState.STABLE
        self._check_shares(self.desk.living)

    def _check_shares(self, group: ConsumerGroup) -> None:
        everything: Partitions = {}
        for who in self.consumers:
            assert who.owned == group.target(who.id) == group.members[who.id].assigned
            everything = together(everything, who.owned)
        wanted = {
            view.topic_id: frozenset(range(view.partitions))
            for name, view in self.desk.topics.all().items()
            if any(self._wants(who, name) for who in self.consumers)
        }
        assert everything == wanted

    def _wants(self, who: SlowConsumer, topic: str) -> bool:
        by_pattern = {
            "b.*|orders": topic in ("bills", "orders"),
            "notes.*": topic.startswith("notes"),
        }
        return topic in (who.topics or ()) or by_pattern.get(who.regex or "", False)

    # -- what must hold --------------------------------------------------------------------

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if isinstance(self.desk.group, ConsumerGroup):
            members = self.desk.group.members
            heard = [who for who in self.consumers if who.id in members]
            for one, other in itertools.combinations(heard, 2):
                assert not overlap(one.owned, other.owned), f"{one.id} and {other.id}"

    @rule(data=st.data())
    def log_gives_the_same(self, data: st.DataObject) -> None:
        log, live = self.desk.log, durable(self.desk.groups)
        place = data.draw(st.integers(0, len(log)))
        assert durable(replayed(log)) == live
        assert durable(replayed([*compacted(log[:place]), *log[place:]])) == live
        assert durable(replayed(compacted(log, keep_tombstones=False))) == live


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    max_examples=scaled(test=200, verify=1000, release=20_000),
    stateful_step_count=50,
    deadline=None,
    report_multiple_bugs=False,
)
