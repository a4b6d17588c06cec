"""`penstock.Admin` against a real broker: Penstock's own, or Kafka."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta

import pytest
from tests.clients.our_topics import new_name
from tests.clients.under_test import BrokerUnderTest

import penstock
from penstock import AlterConfigOp, ConfigResource, NewTopic, TopicPartition
from penstock.client.admin_values import DescribedConfigSource

pytestmark = pytest.mark.xdist_group("clients")

PATIENCE_S = 180.0


@pytest.fixture
def admin(broker: BrokerUnderTest) -> Iterator[penstock.Admin]:
    with penstock.Admin(broker.bootstrap_servers) as admin:
        yield admin


@pytest.fixture
def topic(admin: penstock.Admin) -> str:
    """With two partitions and no records."""
    name = new_name()
    admin.create_topics(NewTopic(name, 2, 1))
    return name


def own_configs(admin: penstock.Admin, topic: str) -> Mapping[str, str | None]:
    return admin.describe_topics(topic, offsets=False)[topic].configs


def wait(is_so: Callable[[], bool]) -> None:
    """KRaft answers before its brokers know of a change."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline


def write(broker: BrokerUnderTest, topic: str, count: int) -> None:
    with penstock.Producer(broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=0)


class TestTopics:
    def test_an_item_that_fails_leaves_the_others_done(self, admin: penstock.Admin) -> None:
        first, second = new_name(), new_name()
        made = admin.create_topics(NewTopic(first, 3, 1, configs={"retention.ms": 60_000}))[first]
        assert (made.partitions, made.replication_factor) == (3, 1)
        with pytest.raises(penstock.ItemsFailed) as caught:
            admin.create_topics([first, NewTopic(second, 1, 1)])
        assert isinstance(caught.value.errors[first], penstock.TopicAlreadyExists)
        assert list(caught.value.results) == [second]
        wait(lambda: {first, second} <= {listed.name for listed in admin.list_topics()})
        with pytest.raises(penstock.TopicAlreadyExists, match=first):
            admin.create_topics(first)
        admin.delete_topics([first, second])
        with pytest.raises(penstock.UnknownTopicOrPartition, match=first):
            admin.delete_topics(first)

    def test_validate_only_creates_nothing(self, admin: penstock.Admin) -> None:
        name = new_name()
        admin.create_topics(NewTopic(name, 1, 1), validate_only=True)
        assert name not in {listed.name for listed in admin.list_topics()}

    def test_partitions_are_added(self, admin: penstock.Admin, topic: str) -> None:
        admin.create_partitions({topic: 4})
        described = admin.describe_topics(topic, offsets=False)[topic]
        assert [one.partition for one in described.partitions] == [0, 1, 2, 3]
        with pytest.raises(penstock.RefusedByBroker, match=topic):
            admin.create_partitions({topic: 2})

    def test_every_replica_has_its_offsets(
        self, broker: BrokerUnderTest, admin: penstock.Admin, topic: str
    ) -> None:
        write(broker, topic, 5)
        admin.delete_records({TopicPartition(topic, 0): 2})
        described = admin.describe_topics([topic])[topic]
        first = described.partitions[0]
        assert (first.log_start_offset, first.high_watermark, first.log_end_offset) == (2, 5, 5)
        assert (first.leader, first.in_sync) == (first.replicas[0].broker, (first.leader,))
        replica = first.replicas[0]
        own = (replica.log_start_offset, replica.high_watermark, replica.log_end_offset)
        assert own == ((None, None, None) if broker.is_kafka else (2, 5, 5))
        assert (replica.behind, replica.behind_ms) == ((None, None) if broker.is_kafka else (0, 0))

    def test_without_names_every_topic_that_is_not_internal_is_described(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        described = admin.describe_topics(offsets=False)
        assert topic in described
        assert not any(one.is_internal for one in described.values())


class TestOffsets:
    def test_offsets_are_listed_at_edges_and_times(
        self, broker: BrokerUnderTest, admin: penstock.Admin, topic: str
    ) -> None:
        empty, full = TopicPartition(topic, 1), TopicPartition(topic, 0)
        before = datetime.now(UTC) - timedelta(minutes=1)
        write(broker, topic, 4)
        ends = admin.list_offsets(topic)
        assert {tp: info.offset for tp, info in ends.items()} == {full: 4, empty: 0}
        assert admin.list_offsets(full, "earliest")[full].offset == 0
        newest = admin.list_offsets([full], "max_timestamp")[full]
        assert newest.offset == 3 or newest.timestamp_ms is not None
        at = admin.list_offsets({full: before, empty: before})
        assert (at[full].offset, at[empty].offset) == (0, None)
        later = datetime.now(UTC) + timedelta(hours=1)
        assert admin.list_offsets(full, later)[full].offset is None

    def test_a_partition_that_does_not_exist_is_refused_at_once(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        absent = TopicPartition(topic, 7)
        for ask in (admin.list_offsets, admin.list_open_transactions, admin.elect_leaders):
            with pytest.raises(penstock.UnknownTopicOrPartition, match="the topic has 2"):
                ask(absent)
        with pytest.raises(penstock.UnknownTopicOrPartition, match="does not exist"):
            admin.list_offsets(new_name())

    def test_deleted_records_move_the_log_start(
        self, broker: BrokerUnderTest, admin: penstock.Admin, topic: str
    ) -> None:
        write(broker, topic, 4)
        full = TopicPartition(topic, 0)
        assert admin.delete_records({full: 3}) == {full: 3}
        assert admin.delete_records({full: "latest"}) == {full: 4}
        with pytest.raises(penstock.RefusedByBroker):
            admin.delete_records({full: 100})


def _refused_unless(is_kafka: bool) -> AbstractContextManager[object]:
    refused = pytest.raises(penstock.RefusedByBroker, match="KIP-848")
    return nullcontext() if is_kafka else refused


class TestGroups:
    def test_a_group_is_reset_and_deleted(
        self, broker: BrokerUnderTest, admin: penstock.Admin, topic: str
    ) -> None:
        write(broker, topic, 10)
        group, full = new_name(), TopicPartition(topic, 0)
        admin.alter_group_offsets(group, {full: 4})
        described = admin.describe_groups(group)[group]
        assert (described.state, described.lag, described.members) == ("Empty", 6, ())
        assert group in {listed.group for listed in admin.list_groups(states=["empty"])}
        assert group not in {listed.group for listed in admin.list_groups(states=["Stable"])}
        (planned,) = admin.reset_group_offsets(group, to="latest", dry_run=True)
        assert (planned.committed, planned.offset) == (4, 10)
        assert admin.list_group_offsets(group)[full].offset == 4
        admin.reset_group_offsets(group, full, shift_by=3)
        assert admin.list_group_offsets(group, topic)[full].offset == 7
        admin.reset_group_offsets(group, topic, to=timedelta(hours=1))
        assert admin.list_group_offsets(group)[full].offset == 0
        admin.delete_group_offsets(group, [full])
        assert full not in admin.list_group_offsets(group)

    def test_a_missing_group_is_named_beside_one_that_exists(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        there, absent = new_name(), new_name()
        admin.alter_group_offsets(there, {TopicPartition(topic, 0): 0})
        with pytest.raises(penstock.ItemsFailed) as caught:
            admin.describe_groups([there, absent])
        assert isinstance(caught.value.errors[absent], penstock.GroupNotFound)
        assert caught.value.results[there].group == there
        admin.delete_groups(there)
        with pytest.raises(penstock.GroupNotFound):
            admin.delete_groups(there)

    def test_a_group_with_members_is_not_touched_until_they_are_removed(
        self, broker: BrokerUnderTest, admin: penstock.Admin, topic: str
    ) -> None:
        group, full = new_name(), TopicPartition(topic, 0)
        consumer = penstock.Consumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group=group,
            connect_timeout_s=PATIENCE_S,
            config={"group.instance.id": "till-1"},
        )
        with consumer:
            consumer.wait_for_assignment()
            (member,) = admin.describe_groups(group)[group].members
            assert (member.instance, len(member.assignment)) == ("till-1", 2)
            for touch in (
                lambda: admin.alter_group_offsets(group, {full: 0}),
                lambda: admin.reset_group_offsets(group, topic, to="earliest"),
                lambda: admin.delete_groups(group),
            ):
                with pytest.raises(penstock.GroupNotEmpty):
                    touch()
        # A static member does not leave when it is closed.
        admin.remove_group_members(group, instances=["till-1"])
        assert admin.describe_groups(group)[group].members == ()
        admin.alter_group_offsets(group, {full: 0})

    def test_members_of_the_consumer_protocol_are_not_removed_by_every_broker(
        self, broker: BrokerUnderTest, admin: penstock.Admin, topic: str
    ) -> None:
        group = new_name()
        with penstock.Consumer(
            topic,
            bootstrap_servers=broker.bootstrap_servers,
            group=group,
            connect_timeout_s=PATIENCE_S,
            config={"group.protocol": "consumer"},
        ) as consumer:
            consumer.wait_for_assignment()
            with _refused_unless(broker.is_kafka):
                admin.remove_group_members(group, everyone=True)
        admin.remove_group_members(group, everyone=True)  # there are none
        assert admin.describe_groups(group)[group].members == ()

    def test_members_must_be_said(self, admin: penstock.Admin) -> None:
        with pytest.raises(ValueError, match="say which members"):
            admin.remove_group_members("g")


class TestConfigs:
    def test_settings_of_a_topic_are_changed_one_by_one(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        resource = ConfigResource.topic(topic)
        admin.alter_configs(
            resource, {"retention.ms": 60_000}, append={"cleanup.policy": "compact"}
        )
        wait(lambda: own_configs(admin, topic).get("retention.ms") == "60000")
        configs = admin.describe_configs(resource, synonyms=True)[resource]
        assert configs["retention.ms"].source is DescribedConfigSource.TOPIC
        policy = configs["cleanup.policy"]
        assert policy.value == "delete,compact"
        assert [synonym.source for synonym in policy.synonyms] == [
            DescribedConfigSource.TOPIC,
            DescribedConfigSource.DEFAULT,
        ]
        admin.alter_configs(
            resource, {"retention.ms": None}, subtract={"cleanup.policy": ["delete"]}
        )
        wait(lambda: own_configs(admin, topic) == {"cleanup.policy": "compact"})
        only = admin.describe_configs(resource, names=["retention.ms", "cleanup.policy"])[resource]
        assert list(only) == ["cleanup.policy", "retention.ms"]
        assert not only["retention.ms"].is_own

    def test_a_refused_resource_leaves_the_others_changed(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        good, absent = ConfigResource.topic(topic), ConfigResource.broker(4711)
        with pytest.raises(penstock.ItemsFailed) as caught:
            admin.incremental_alter_configs(
                {
                    absent: [AlterConfigOp("log.cleaner.threads", "2")],
                    good: [AlterConfigOp("retention.ms", "60000")],
                }
            )
        assert list(caught.value.errors) == [absent]
        wait(lambda: own_configs(admin, topic) == {"retention.ms": "60000"})

    def test_a_setting_that_does_not_exist_is_refused(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        with pytest.raises(penstock.RefusedByBroker, match=r"retention\.mss"):
            admin.alter_configs(ConfigResource.topic(topic), {"retention.mss": 1})
        with pytest.raises(ValueError, match="nothing to change"):
            admin.alter_configs(ConfigResource.topic(topic))

    def test_brokers_and_their_loggers_are_described(self, admin: penstock.Admin) -> None:
        broker_id = admin.describe_cluster().controller_id
        own, loggers = ConfigResource.broker(broker_id), ConfigResource.broker_logger(broker_id)
        described = admin.describe_configs([own, loggers])
        assert described[own]["num.io.threads"].value
        assert all(
            entry.source is DescribedConfigSource.BROKER_LOGGER
            for entry in described[loggers].values()
        )


class TestCluster:
    def test_brokers_leaders_and_log_dirs_are_described(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        cluster = admin.describe_cluster()
        (broker_id,) = cluster.brokers
        assert cluster.cluster_id
        partitions = {TopicPartition(topic, number): False for number in range(2)}
        assert admin.elect_leaders(topic) == partitions
        assert admin.list_reassignments() == {}

        def on_disk() -> set[TopicPartition]:
            ((directory,),) = admin.describe_log_dirs(partitions=topic).values()
            return set(directory.replicas)

        wait(lambda: on_disk() == set(partitions))
        with pytest.raises(penstock.RefusedByBroker):
            admin.alter_reassignments({TopicPartition(topic, 0): [broker_id, 4711]})
        with pytest.raises(ValueError, match="name the partitions"):
            admin.elect_leaders(election="unclean")


class TestTransactions:
    def test_an_open_transaction_is_shown_and_its_producer_fenced(
        self, broker: BrokerUnderTest, admin: penstock.Admin, topic: str
    ) -> None:
        name = new_name()

        def send_and_fence(producer: penstock.TransactionalProducer) -> None:
            with producer.transaction():
                producer.send(topic, "undecided", partition=0)
                producer.flush()
                (open_one,) = admin.list_open_transactions(topic)
                assert open_one.tp == TopicPartition(topic, 0)
                described = admin.describe_transactions(name)[name]
                assert (described.state, described.partitions) == ("Ongoing", (open_one.tp,))
                assert name in {one.transactional_id for one in admin.list_transactions()}
                admin.fence_producers(name)
            raise AssertionError("a fenced producer has committed")

        with (
            penstock.TransactionalProducer(
                broker.bootstrap_servers, transactional_id=name
            ) as producer,
            pytest.raises(penstock.ProducerFenced),
        ):
            send_and_fence(producer)
        assert admin.list_open_transactions(topic) == []
        assert admin.describe_transactions(name)[name].state == "Empty"


class TestPrograms:
    def test_it_works_inside_a_running_event_loop(self, admin: penstock.Admin, topic: str) -> None:
        """As in a notebook: the thread that calls has a running loop of its own."""

        async def cell() -> bool:
            return topic in {listed.name for listed in admin.list_topics()}

        assert asyncio.run(cell())
        assert asyncio.run(cell())  # another loop

    def test_any_thread_may_use_it(self, admin: penstock.Admin, topic: str) -> None:
        with ThreadPoolExecutor(8) as threads:
            described = list(
                threads.map(lambda _: admin.describe_topics(topic)[topic].name, range(24))
            )
        assert described == [topic] * 24

    def test_a_forked_child_connects_anew_and_the_parent_continues(
        self, admin: penstock.Admin, topic: str
    ) -> None:
        admin.describe_topics(topic)
        child = os.fork()
        if not child:
            try:
                os._exit(0 if topic in admin.describe_topics(topic) else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert topic in admin.describe_topics(topic)

    def test_the_twin_has_the_same_operations_as_coroutines(
        self, broker: BrokerUnderTest, topic: str
    ) -> None:
        async def work() -> None:
            async with penstock.AsyncAdmin(broker.bootstrap_servers) as admin:
                names, cluster = await asyncio.gather(admin.list_topics(), admin.describe_cluster())
                assert topic in {listed.name for listed in names}
                assert cluster.brokers
                with pytest.raises(penstock.TopicAlreadyExists):
                    await admin.create_topics(topic)

        asyncio.run(work())

    def test_the_twin_says_that_another_loop_cannot_use_it(self, broker: BrokerUnderTest) -> None:
        admin = penstock.AsyncAdmin(broker.bootstrap_servers)

        async def use_and_close() -> None:
            await admin.describe_cluster()
            await admin.close()

        asyncio.run(use_and_close())
        with pytest.raises(RuntimeError, match="belongs to another event loop"):
            asyncio.run(admin.describe_cluster())

    def test_a_closed_one_says_so(self, broker: BrokerUnderTest) -> None:
        with penstock.Admin(broker.bootstrap_servers) as admin:
            admin.describe_cluster()
        with pytest.raises(penstock.ClientClosed, match="create a new one"):
            admin.describe_cluster()

    def test_a_broker_that_does_not_answer_ends_with_the_timeout(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            address = f"127.0.0.1:{silent.getsockname()[1]}"
            with (
                penstock.Admin(address, timeout_s=0.3) as admin,
                pytest.raises(penstock.ClientError, match=address),
            ):
                admin.list_topics()

    def test_closing_it_ends_an_operation_of_another_thread(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            admin = penstock.Admin(f"127.0.0.1:{silent.getsockname()[1]}", timeout_s=600)
            errors: list[BaseException] = []

            def ask() -> None:
                try:
                    admin.list_topics()
                except penstock.ClientError as error:
                    errors.append(error)

            thread = threading.Thread(target=ask)
            thread.start()
            connection, _ = silent.accept()  # the operation waits for an answer
            with connection:
                admin.close()
                thread.join()
        assert isinstance(errors[0], penstock.ClientClosed)
