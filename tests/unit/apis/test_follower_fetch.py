"""Fetches of followers: how far they read, the progress they report, and who may be one."""

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.brokers_listener import let_brokers_in
from tests.unit.apis.harness import ME, OTHER, ApiHarness, Sent, batch, node, topic_id_of

from penstock.apis.registry import APIS
from penstock.model.cluster import BrokerEpoch
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import iter_headers
from penstock.replication.partition import Partition
from penstock.replication.replica_manager import ReplicaManager
from penstock.security.authorizer import AclOperation, ResourceType

KEY = ApiKey.FETCH
VERSIONS = [version for version in APIS[KEY].versions if version >= 12]
P0 = TopicPartition("orders", 0)
BOTH = (ME, OTHER)


@pytest.fixture(autouse=True)
def _brokers_listen(harness: ApiHarness) -> None:
    let_brokers_in(harness)


def fetch(
    harness: ApiHarness,
    offset: int,
    *,
    version: int = VERSIONS[-1],
    follower: int = OTHER,
    broker_epoch: int = -1,
    epoch: int = 0,
    last_epoch: int = -1,
    wait_ms: int = 0,
) -> Sent:
    requested = {
        "partition": 0,
        "fetch_offset": offset,
        "partition_max_bytes": 1 << 20,
        "current_leader_epoch": epoch,
        "last_fetched_epoch": last_epoch,
    }
    return harness.send(
        KEY,
        version,
        replica_id=follower,
        replica_state={"replica_id": follower, "replica_epoch": broker_epoch},
        max_wait=timedelta(milliseconds=wait_ms),
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[{"topic": "orders", "topic_id": topic_id_of("orders"), "partitions": [requested]}],
    )


def only(sent: Sent) -> Any:
    ((answer,),) = ([*topic.partitions] for topic in sent.reply.responses)
    return answer


def offsets_in(answer: Any) -> list[int]:
    return [header.base_offset for _, header in iter_headers(bytes(answer.records or b""))]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_follower_reads_beyond_the_high_watermark_and_advances_it_with_its_next_fetch(
    harness: ApiHarness, version: int
) -> None:
    harness.make_topic("orders", replicas=BOTH)
    harness.fill("orders", batch(b"a"), batch(b"b"))
    answer = only(fetch(harness, 0, version=version))
    assert (answer.error_code, answer.high_watermark, answer.log_start_offset) == (0, 0, 0)
    assert offsets_in(answer) == [0, 1]
    assert harness.replicas.get(P0).high_watermark == 0
    answer = only(fetch(harness, 2, version=version, last_epoch=0))
    assert (answer.error_code, answer.high_watermark) == (0, 2)


def test_a_delayed_follower_fetch_completes_on_append_not_on_commit(
    harness: ApiHarness,
) -> None:
    harness.make_topic("orders", replicas=BOTH)
    sent = fetch(harness, 0, wait_ms=500)
    assert not sent.is_answered
    harness.fill("orders", batch(b"a"))
    assert offsets_in(only(sent)) == [0]


@pytest.mark.parametrize("epoch", [2, 4])
def test_a_follower_fetch_with_another_leader_epoch_is_refused_and_not_recorded(
    harness: ApiHarness, epoch: int
) -> None:
    harness.make_topic("orders", replicas=BOTH, epoch=3)
    harness.fill("orders", batch(b"a"))
    expected = ErrorCode.FENCED_LEADER_EPOCH if epoch < 3 else ErrorCode.UNKNOWN_LEADER_EPOCH
    assert only(fetch(harness, 1, epoch=epoch)).error_code == expected
    assert harness.replicas.get(P0).high_watermark == 0


def test_a_diverging_follower_gets_the_diverging_epoch_and_is_not_recorded(
    harness: ApiHarness,
) -> None:
    harness.make_topic("orders", replicas=BOTH, epoch=1)
    harness.fill("orders", batch(b"a"))
    harness.make_topic("orders", replicas=BOTH, epoch=3)
    harness.fill("orders", batch(b"b"))
    answer = only(fetch(harness, 2, epoch=3, last_epoch=2))
    assert answer.error_code == 0
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (1, 1)
    assert not offsets_in(answer)
    assert harness.replicas.get(P0).high_watermark == 0


def test_a_follower_beyond_the_leaders_log_end_gets_the_diverging_epoch(
    harness: ApiHarness,
) -> None:
    harness.make_topic("orders", replicas=BOTH, epoch=1)
    harness.fill("orders", batch(b"a"))
    harness.make_topic("orders", replicas=BOTH, epoch=2)
    answer = only(fetch(harness, 9, epoch=2, last_epoch=1))
    assert answer.error_code == 0
    assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (1, 1)


def test_a_follower_below_the_leaders_log_start_gets_the_log_start(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=BOTH)
    harness.fill("orders", batch(b"a"), batch(b"b"))
    fetch(harness, 2, last_epoch=0)
    harness.replicas.delete_records(P0, harness.replicas.get(P0).high_watermark)
    answer = only(fetch(harness, 0))
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert answer.log_start_offset == 2


def test_a_broker_that_is_no_replica_is_refused(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=BOTH)
    assert only(fetch(harness, 0, follower=7)).error_code == ErrorCode.REPLICA_NOT_AVAILABLE


def test_a_follower_without_cluster_action_is_refused_and_not_recorded(harness: ApiHarness) -> None:
    """CVE-2018-1288."""
    harness.make_topic("orders", replicas=BOTH)
    harness.fill("orders", batch(b"a"))
    harness.guard.deny(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")
    answer = only(fetch(harness, 1, last_epoch=0))
    assert answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert harness.replicas.get(P0).high_watermark == 0


def test_a_follower_on_a_client_listener_is_refused(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=BOTH)
    let_brokers_in(harness, "BROKERS")
    assert only(fetch(harness, 0)).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_follower_without_an_epoch_is_refused(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=BOTH)
    assert only(fetch(harness, 0, epoch=-1)).error_code == ErrorCode.INVALID_REQUEST


def test_a_follower_with_a_stale_broker_epoch_is_refused(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=BOTH)
    harness.update_metadata(brokers=(node(ME), replace(node(OTHER), epoch=BrokerEpoch(5))))
    for epoch, code in ((4, ErrorCode.STALE_BROKER_EPOCH), (5, 0), (6, 0), (-1, 0)):
        assert only(fetch(harness, 0, broker_epoch=epoch)).error_code == code


@pytest.mark.parametrize(("offset", "last_epoch"), [(1, 0), (1, -1), (9, 0)])
def test_a_follower_fetch_looks_up_its_partition_once_and_checks_divergence_once(
    harness: ApiHarness, monkeypatch: pytest.MonkeyPatch, offset: int, last_epoch: int
) -> None:
    harness.make_topic("orders", replicas=BOTH)
    harness.fill("orders", batch(b"a"))
    calls: Counter[str] = Counter()

    def count(owner: type, name: str) -> None:
        original = getattr(owner, name)

        def counted_call(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted_call)

    for owner, name in (
        (ReplicaManager, "get"),
        (ReplicaManager, "find"),
        (Partition, "check_leader"),
        (Partition, "find_divergence"),
    ):
        count(owner, name)
    sent = fetch(harness, offset, last_epoch=last_epoch, wait_ms=500)
    harness.fill("orders", batch(b"b"))  # completes the fetch if it is delayed
    assert sent.is_answered
    divergences = {"find_divergence": 1} if last_epoch >= 0 else {}
    assert calls == {"get": 1, "check_leader": 1, **divergences}


def test_a_delayed_follower_fetch_is_fenced_by_the_next_leader_epoch(harness: ApiHarness) -> None:
    harness.make_topic("orders", replicas=BOTH, epoch=1)
    sent = fetch(harness, 0, epoch=1, wait_ms=500)
    assert not sent.is_answered
    harness.make_topic("orders", replicas=BOTH, epoch=2)
    assert only(sent).error_code == ErrorCode.FENCED_LEADER_EPOCH
