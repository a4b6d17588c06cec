"""Quotas as requests see them: throttle times, muted connections, empty fetches, exempt brokers."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.apis.harness import ApiHarness as PlainHarness
from tests.unit.apis.harness import FakeConnection, Sent, batch, build, topic_id_of
from tests.unit.security.sasl.logins import PASSWORDS, make_listener, plain_token

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.inter_broker_access import InterBroker
from penstock.apis.registry import APIS
from penstock.apis.throttling import RequestThrottle
from penstock.inter_broker.apis.registry import load_private_api
from penstock.model.acls import AccessControlEntry, AclPermission, ResourcePattern
from penstock.model.errors import ErrorCode, get_error
from penstock.model.quotas import DEFAULT_ENTITY, QuotaEntity, QuotaKey, Quotas
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.schemas import get_request_schema
from penstock.protocol.wire_types import ms_of_delta
from penstock.security.acl_authorizer import AclAuthorizer, AuthorizerConfig
from penstock.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from penstock.security.quotas.client_quotas import ClientQuotas, QuotaWindows
from penstock.security.quotas.rates import RateWindow
from penstock.security.sasl.login import SaslLogin

EVERYBODY = QuotaEntity(DEFAULT_ENTITY)
WINDOW_S = 10  # as a rate counts a client that has just come
VALUE = b"v" * 1000


class QuotaHarness(PlainHarness):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.quotas = ClientQuotas()
        nobody = cast("Any", None)
        brokers = InterBroker(
            listener="BROKERS",
            membership=cast("Any", SimpleNamespace()),
            configs=nobody,
            handle_controller_request=lambda request: None,
            load_api=load_private_api,
        )
        self.services = replace(self.services, quotas=self.quotas, inter_broker=brokers)
        self.dispatcher = Dispatcher(APIS, self.services)
        self.make_topic("t")

    def limit(self, *, entity: QuotaEntity = EVERYBODY, **values: float) -> None:
        quotas: Quotas = {QuotaKey(name): value for name, value in values.items()}
        self.quotas.replace({entity: quotas})

    def produce(self, version: int = 9, *, acks: int = 1) -> Sent:
        data = [{"name": "t", "partition_data": [{"index": 0, "records": batch(VALUE)}]}]
        return self.send(ApiKey.PRODUCE, version, acks=acks, topic_data=data)

    def fetch(
        self,
        version: int = 12,
        *,
        connection: FakeConnection | None = None,
        **fields: Any,
    ) -> Sent:
        partition = {
            "partition": 0,
            "fetch_offset": 0,
            "partition_max_bytes": 1_000_000,
            "current_leader_epoch": -1,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
        }
        topic = {"topic": "t", "topic_id": topic_id_of("t"), "partitions": [partition]}
        values: dict[str, Any] = {
            "replica_id": -1,
            "max_bytes": 1_000_000,
            "min_bytes": 1,
            "session_epoch": -1,
            "topics": [topic],
            **fields,
        }
        return self.send(ApiKey.FETCH, version, connection=connection, **values)


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> Iterator[QuotaHarness]:
    harness = QuotaHarness(tmp_path)
    yield harness
    harness.close()


def ms_of(response: Any) -> int:
    return ms_of_delta(response.throttle_time)


def records_of(response: Any) -> int:
    return sum(
        len(partition.records or b"")
        for topic in response.responses
        for partition in topic.partitions
    )


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_produce_over_its_quota_is_written_answered_and_muted(
    harness: QuotaHarness, version: int
) -> None:
    harness.limit(producer_byte_rate=10.0)
    sent = harness.produce(version)
    [partition] = sent.reply.responses[0].partition_responses
    assert (partition.error_code, partition.base_offset) == (0, 0)
    assert ms_of(sent.reply) > 0
    assert harness.connection.muted_ms == [ms_of(sent.reply)]
    # throttle = (rate - bound) / bound x window, of all the bytes of the request
    size = sent.in_flight.observer._request_bytes  # type: ignore[union-attr]
    rate = size / WINDOW_S
    assert ms_of(sent.reply) == pytest.approx((rate - 10) / 10 * WINDOW_S * 1000, abs=1)


def test_produce_with_acks_0_over_its_quota_is_muted_without_an_answer(
    harness: QuotaHarness,
) -> None:
    harness.limit(producer_byte_rate=10.0)
    sent = harness.produce(acks=0)
    assert sent.bytes == b""
    assert len(harness.connection.muted_ms) == 1


def test_produce_below_its_quota_is_not_throttled(harness: QuotaHarness) -> None:
    harness.limit(producer_byte_rate=1_000_000.0, consumer_byte_rate=1.0)
    assert ms_of(harness.produce().reply) == 0
    assert harness.connection.muted_ms == []


def test_without_quotas_requests_are_not_even_observed(harness: QuotaHarness) -> None:
    sent = harness.produce()
    assert not isinstance(sent.in_flight.observer, RequestThrottle)
    assert ms_of(sent.reply) == 0
    harness.limit(producer_byte_rate=10.0)
    assert isinstance(harness.produce().in_flight.observer, RequestThrottle)
    harness.quotas.replace({})
    assert not isinstance(harness.produce().in_flight.observer, RequestThrottle)


@pytest.mark.parametrize("version", [4, 7, 12, 16])
def test_fetch_over_its_quota_is_empty_and_gets_the_records_after_the_throttle(
    harness: QuotaHarness, version: int
) -> None:
    harness.produce()
    size = records_of(harness.fetch(version).reply)
    harness.limit(consumer_byte_rate=size / 8)  # a window has room for one response, not for two
    assert records_of(harness.fetch(version).reply) == size
    traffic = harness.replicas.traffic.find("t")
    sent_bytes = traffic.bytes_out
    held_back = harness.fetch(version)
    assert records_of(held_back.reply) == 0
    assert harness.connection.muted_ms == [ms_of(held_back.reply)]
    assert traffic.bytes_out == sent_bytes  # nothing was sent
    harness.clock.advance_ms(12_000)  # what was held back does not count
    assert records_of(harness.fetch(version).reply) == size
    assert len(harness.connection.muted_ms) == 1


def test_a_fetch_asks_for_no_more_than_a_window_has(harness: QuotaHarness) -> None:
    for _ in range(20):
        harness.produce()
    whole = records_of(harness.fetch().reply)
    harness.limit(consumer_byte_rate=whole / 100)
    part = records_of(harness.fetch().reply)
    assert 0 < part <= whole / 100 * WINDOW_S


def test_a_batch_above_a_whole_window_passes_once_the_window_is_empty(
    harness: QuotaHarness,
) -> None:
    harness.produce()
    harness.limit(consumer_byte_rate=1.0)
    assert records_of(harness.fetch().reply) > 1000
    assert records_of(harness.fetch().reply) == 0
    harness.clock.advance_ms(12_000)
    assert records_of(harness.fetch().reply) > 1000


def test_a_session_keeps_what_its_client_has_not_got(harness: QuotaHarness) -> None:
    harness.produce()
    harness.limit(consumer_byte_rate=150.0)
    opened = harness.fetch(session_epoch=0).reply
    assert opened.session_id
    assert records_of(opened) > 0
    fields = {"session_id": opened.session_id, "topics": []}
    held_back = harness.fetch(session_epoch=1, **fields).reply
    assert (held_back.error_code, held_back.session_id) == (0, opened.session_id)
    assert (records_of(held_back), ms_of(held_back) > 0) == (0, True)
    harness.clock.advance_ms(12_000)
    assert records_of(harness.fetch(session_epoch=2, **fields).reply) > 0


def test_a_full_fetch_that_is_held_back_opens_no_session(harness: QuotaHarness) -> None:
    harness.produce()
    harness.limit(consumer_byte_rate=150.0)
    assert records_of(harness.fetch().reply) > 0
    held_back = harness.fetch(session_epoch=0).reply
    assert (held_back.session_id, len(harness.sessions)) == (0, 0)


def test_a_follower_is_exempt_and_who_only_says_so_is_not(harness: QuotaHarness) -> None:
    harness.produce()
    harness.limit(consumer_byte_rate=1.0, request_percentage=0.000_001)
    for _ in range(3):
        follower = harness.fetch(11, replica_id=2, connection=FakeConnection(listener="BROKERS"))
        assert ms_of(follower.reply) == 0
    impostor = FakeConnection()  # on another listener
    refused = harness.fetch(11, replica_id=2, connection=impostor)
    assert records_of(refused.reply) == 0
    assert impostor.muted_ms == [ms_of(refused.reply)] != [0]


def test_a_principal_of_brokers_is_exempt_on_their_listener_alone(harness: QuotaHarness) -> None:
    authorizer = AclAuthorizer(AuthorizerConfig(frozenset(["User:ANONYMOUS"])))
    rules = cast("Any", SimpleNamespace())
    harness.services = replace(harness.services, authorizer=authorizer, acls=rules)
    harness.dispatcher = Dispatcher(APIS, harness.services)
    harness.limit(request_percentage=0.000_001)
    for listener, throttled in (("BROKERS", False), ("PLAINTEXT", True)):
        connection = FakeConnection(listener=listener)
        sent = harness.send(ApiKey.METADATA, 12, connection=connection, topics=[])
        assert (ms_of(sent.reply) > 0, bool(connection.muted_ms)) == (throttled, throttled)


def test_whoever_is_allowed_for_want_of_rules_is_no_broker(harness: QuotaHarness) -> None:
    """Else allow.everyone.if.no.acl.found would take all who share their listener out of quotas."""
    authorizer = AclAuthorizer(AuthorizerConfig(frozenset(["User:broker"]), True))
    rules = cast("Any", SimpleNamespace())
    harness.services = replace(harness.services, authorizer=authorizer, acls=rules)
    harness.dispatcher = Dispatcher(APIS, harness.services)
    harness.limit(request_percentage=0.000_001)
    connection = FakeConnection(listener="BROKERS")
    harness.send(ApiKey.METADATA, 12, connection=connection, topics=[])
    assert connection.muted_ms
    cluster = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
    anonymous = AccessControlEntry(
        "User:ANONYMOUS", "*", AclOperation.CLUSTER_ACTION, AclPermission.ALLOW
    )
    authorizer.replace(cluster, [anonymous])
    harness.send(ApiKey.METADATA, 12, connection=connection, topics=[])
    assert len(connection.muted_ms) == 1


@pytest.mark.parametrize(
    ("key", "version", "fields"),
    [
        (ApiKey.METADATA, 12, {"topics": []}),
        (ApiKey.METADATA, 3, {"topics": []}),
        (ApiKey.FIND_COORDINATOR, 1, {"key": "g"}),
        (ApiKey.CREATE_TOPICS, 7, {"topics": []}),
        (ApiKey.LIST_OFFSETS, 7, {"replica_id": -1, "topics": []}),
        (ApiKey.DESCRIBE_CLUSTER, 0, {}),
        (ApiKey.INIT_PRODUCER_ID, 4, {}),
    ],
)
def test_time_above_the_request_quota_is_answered_and_muted_for_one_sample_at_most(
    harness: QuotaHarness, key: ApiKey, version: int, fields: Mapping[str, Any]
) -> None:
    harness.limit(request_percentage=0.000_001)
    sent = harness.send(key, version, **fields)
    assert harness.connection.muted_ms == [ms_of(sent.reply)]
    assert 0 < ms_of(sent.reply) <= 1000
    assert harness.ask(ApiKey.METADATA, 0, topics=[])  # has no throttle time
    assert len(harness.connection.muted_ms) == 2


def test_a_login_is_not_throttled_and_what_follows_it_is(harness: QuotaHarness) -> None:
    """Until then everybody is anonymous: strangers would make all who log in wait."""
    harness.limit(request_percentage=0.000_001)
    connection = FakeConnection(listener="CLIENTS")
    connection.login = SaslLogin(make_listener())
    token = plain_token("alice", PASSWORDS["alice"])
    harness.send(ApiKey.API_VERSIONS, 3, connection=connection)
    harness.send(ApiKey.SASL_HANDSHAKE, 1, connection=connection, mechanism="PLAIN")
    harness.send(ApiKey.SASL_AUTHENTICATE, 2, connection=connection, auth_bytes=token)
    assert connection.caller.principal.name == "alice"
    assert connection.muted_ms == []
    harness.send(ApiKey.METADATA, 12, connection=connection, topics=[])
    assert connection.muted_ms


def create(name: str, partitions: int) -> dict[str, Any]:
    return {"name": name, "num_partitions": partitions, "replication_factor": 1}


@pytest.fixture(name="few_mutations")
def _few_mutations(harness: QuotaHarness) -> QuotaHarness:
    window = RateWindow(samples=2, sample_ms=1000)
    harness.quotas = ClientQuotas(QuotaWindows(controller=window))
    harness.services = replace(harness.services, quotas=harness.quotas)
    harness.dispatcher = Dispatcher(APIS, harness.services)
    harness.limit(controller_mutation_rate=1.0)
    return harness


def test_partitions_above_the_mutation_rate_are_refused_until_there_are_tokens(
    few_mutations: QuotaHarness,
) -> None:
    harness = few_mutations
    topics = [create("a", 2), create("b", 3), create("c", 1)]
    reply = harness.ask(ApiKey.CREATE_TOPICS, 7, topics=topics)
    codes = {topic.name: get_error(topic.error_code) for topic in reply.topics}
    assert codes["c"] is ErrorCode.THROTTLING_QUOTA_EXCEEDED  # `b` has taken more than there was
    assert ErrorCode.THROTTLING_QUOTA_EXCEEDED not in (codes["a"], codes["b"])
    assert ms_of(reply) == 3000
    assert harness.connection.muted_ms == [3000]
    harness.clock.advance_ms(3001)
    reply = harness.ask(ApiKey.CREATE_TOPICS, 7, topics=[create("c", 1)])
    assert reply.topics[0].error_code != ErrorCode.THROTTLING_QUOTA_EXCEEDED


def test_what_is_only_validated_costs_nothing(few_mutations: QuotaHarness) -> None:
    for _ in range(3):
        reply = few_mutations.ask(
            ApiKey.CREATE_TOPICS, 7, topics=[create("a", 9)], validate_only=True
        )
        assert ms_of(reply) == 0


def test_clients_that_do_not_know_the_error_are_only_made_to_wait(
    few_mutations: QuotaHarness,
) -> None:
    for name, throttle_ms in (("a", 7_000), ("b", 16_000)):
        reply = few_mutations.ask(ApiKey.CREATE_TOPICS, 5, topics=[create(name, 9)])
        assert reply.topics[0].error_code == ErrorCode.NONE
        assert ms_of(reply) == throttle_ms


def test_topics_that_metadata_creates_count_as_well(few_mutations: QuotaHarness) -> None:
    for name in ("a", "b", "c"):
        few_mutations.ask(
            ApiKey.METADATA, 9, topics=[{"name": name}], allow_auto_topic_creation=True
        )
    assert few_mutations.connection.muted_ms == [1_000], "two are a window's"


def test_a_user_with_a_quota_of_its_own_does_not_fall_under_the_default(
    harness: QuotaHarness,
) -> None:
    harness.quotas.replace(
        {
            EVERYBODY: {QuotaKey.PRODUCER_BYTE_RATE: 10.0},
            QuotaEntity("ANONYMOUS", "test"): {QuotaKey.PRODUCER_BYTE_RATE: 1_000_000.0},
        }
    )
    assert ms_of(harness.produce().reply) == 0


def test_invented_client_ids_are_kept_only_in_part(harness: QuotaHarness) -> None:
    """They are remembered with what they have used, so they must not fill the memory."""
    harness.limit(entity=QuotaEntity(None, DEFAULT_ENTITY), request_percentage=0.000_001)
    message = build(get_request_schema(ApiKey.METADATA, 12), {"topics": []})
    tracemalloc.start()
    try:
        for number in range(200):
            client_id = f"{number:030000}"
            frame = encode_request_frame(message, correlation_id=number, client_id=client_id)
            harness.send_frame(bytearray(frame[4:]))
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(harness.connection.muted_ms) == 200
    assert held_bytes < 2_000_000


def test_throttles_are_counted(harness: QuotaHarness) -> None:
    harness.limit(producer_byte_rate=10.0)
    throttle_s = ms_of(harness.produce().reply) / 1000
    statistics = harness.quotas.statistics()
    assert statistics[QuotaKey.PRODUCER_BYTE_RATE] == (1, throttle_s)
    assert statistics[QuotaKey.CONSUMER_BYTE_RATE] == (0, 0.0)
