"""A damaged batch: the follower backs off and notifies the leader, which checks and is replaced."""

import os
from errno import EIO, EMFILE
from itertools import pairwise

import pytest
from tests.unit.replication.harness import ME, OTHER, P0, THIRD, ReplicationHarness
from tests.unit.replication.test_follower_state import FollowerHarness, answer, batches

from penstock.model.cluster import NO_BROKER, PartitionState
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import LeaderEpoch, Offset, TopicPartition
from penstock.replication.refused_batches import (
    MAX_PAUSE_MS,
    DamageVerdict,
    RefusedBatch,
    damaged_offset_to_drop,
    judge_damage,
    refusal_pause_ms,
)
from penstock.testing.simulated_disk import OperationKind

ALL = (ME, OTHER, THIRD)
SEGMENT = "/orders-0/00000000000000000000.log"


# -- the rules -----------------------------------------------------------------------------


def test_the_pause_doubles_up_to_a_bound() -> None:
    pauses = [refusal_pause_ms(refusals) for refusals in range(1, 40)]
    assert all(after == min(2 * before, MAX_PAUSE_MS) for before, after in pairwise(pauses))
    assert (pauses[0], pauses[-1]) == (500, MAX_PAUSE_MS)


def led(in_sync: tuple[int, ...], leader: int = ME) -> PartitionState:
    harness = ReplicationHarness()
    harness.leader_and_isr(P0, leader=leader, replicas=ALL, in_sync=in_sync, epoch=1)
    return harness.partition().state


def test_a_leader_is_replaced_only_if_the_isr_has_another_member() -> None:
    assert judge_damage(led(ALL), ME) is DamageVerdict.MOVES
    assert judge_damage(led((ME,)), ME) is DamageVerdict.STAYS


@pytest.mark.parametrize(
    ("in_sync", "leader", "expected"),
    [
        ((OTHER,), OTHER, 7),
        ((ME, OTHER), OTHER, None),  # counts as having every committed record
        ((ME,), ME, None),
        ((OTHER,), NO_BROKER, None),  # no leader to fetch from
    ],
)
def test_damage_is_truncated_only_outside_the_isr(
    in_sync: tuple[int, ...], leader: int, expected: int | None
) -> None:
    assert damaged_offset_to_drop(Offset(7), led(in_sync, leader), ME) == expected


# -- the follower --------------------------------------------------------------------------


def test_a_follower_reports_a_damaged_batch_once_and_backs_off_ever_longer() -> None:
    harness = FollowerHarness()
    refused: list[RefusedBatch] = []
    harness.following.on_refused = refused.append
    broken = batches(0)
    broken[-1] ^= 1
    start_ms = harness.clock.now_ms()
    for _ in range(30):
        while not harness.following.list_wanted(OTHER):
            due_ms = harness.following.next_due_ms(OTHER)
            assert due_ms is not None
            harness.clock.advance_ms(due_ms - harness.clock.now_ms())
        harness.take(answer(records=broken))
    assert len([line for line in harness.reports if "cannot be appended" in line]) == 1
    assert refused == [RefusedBatch(P0, OTHER, LeaderEpoch(0), Offset(0))] * 30
    assert harness.clock.now_ms() - start_ms > 20 * MAX_PAUSE_MS
    harness.clock.advance_ms(MAX_PAUSE_MS)
    harness.take(answer(records=batches(0)))
    harness.take(answer(records=batches(0, start=1)))
    assert harness.end == 2
    assert len([line for line in harness.reports if "are appended again" in line]) == 1


@pytest.mark.parametrize("error", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR])
def test_a_leader_that_cannot_read_its_log_is_requested_to_check_it(error: ErrorCode) -> None:
    harness = FollowerHarness()
    refused: list[RefusedBatch] = []
    harness.following.on_refused = refused.append
    harness.take(answer(error=error))
    assert [request.offset for request in refused] == [0]
    assert harness.following.list_wanted(OTHER) == []


# -- the leader ----------------------------------------------------------------------------


class DamagedLeader(ReplicationHarness):
    """Broker 1 leads with four records, each in a batch; the third may be damaged."""

    def __init__(self, *in_sync: int) -> None:
        super().__init__()
        self.damaged: list[TopicPartition] = []
        self.replicas.listen_for_damage(self.damaged.append)
        self.leader_and_isr(P0, leader=ME, replicas=ALL, in_sync=in_sync, epoch=1)
        for _ in range(4):
            self.append(P0, acks=1)

    def flip(self, byte_in_batch: int) -> None:
        [(path, content)] = [
            item for item in self.disk.files().items() if item[0].endswith(SEGMENT)
        ]
        self.disk.flip_bit(path, (2 * len(content) // 4 + byte_in_batch) * 8)

    def check(self, offset: int = 0, epoch: int = 1) -> ErrorCode:
        try:
            self.replicas.check_refused(P0, epoch, Offset(offset), follower=OTHER)
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE

    def alarms(self) -> list[str]:
        return [line for line in self.reports if "IS DAMAGED at offset 2" in line]


def test_a_leader_with_an_intact_log_stays() -> None:
    harness = DamagedLeader(*ALL)
    assert harness.check() is ErrorCode.NONE
    assert (harness.damaged, harness.partition().damaged_at) == ([], None)


@pytest.mark.parametrize("byte_in_batch", [-1 + 61, 8, 16], ids=["record", "length", "magic"])
def test_a_leader_with_a_damaged_log_requests_another_leader_and_logs_it_once(
    byte_in_batch: int,
) -> None:
    harness = DamagedLeader(*ALL)
    harness.flip(byte_in_batch)
    assert harness.check(offset=2) is ErrorCode.CORRUPT_MESSAGE
    assert harness.check(offset=2) is ErrorCode.CORRUPT_MESSAGE
    assert harness.damaged == [P0, P0], "asked again: the first request may have come to nothing"
    (alarm,) = harness.alarms()
    assert "another leader from the ISR" in alarm


def test_damage_is_found_after_intact_batches() -> None:
    harness = DamagedLeader(*ALL)
    harness.flip(60)
    assert harness.check(offset=0) is ErrorCode.CORRUPT_MESSAGE
    assert harness.partition().damaged_at == 2


def test_the_only_in_sync_replica_stays_leader_and_logs_it() -> None:
    harness = DamagedLeader(ME)
    harness.flip(60)
    assert harness.check() is ErrorCode.CORRUPT_MESSAGE
    assert harness.damaged == []
    (alarm,) = harness.alarms()
    assert "only in-sync replica and stays the leader" in alarm


def test_a_leader_whose_disk_fails_reads_requests_another_leader() -> None:
    harness = DamagedLeader(*ALL)
    harness.disk.fail_path(SEGMENT, EIO, {OperationKind.READ})
    assert harness.check(offset=2) is ErrorCode.CORRUPT_MESSAGE
    assert (harness.damaged, harness.partition().damaged_at) == ([P0], 2)
    (alarm,) = harness.alarms()
    assert os.strerror(EIO) in alarm


def test_running_out_of_descriptors_is_no_damage() -> None:
    harness = DamagedLeader(*ALL)
    harness.disk.fail_path(SEGMENT, EMFILE, {OperationKind.READ})
    assert harness.check(offset=2) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (harness.damaged, harness.partition().damaged_at) == ([], None)
    assert any("cannot be checked for damage at offset 2" in line for line in harness.reports)


@pytest.mark.parametrize("epoch", [0, 2])
def test_a_request_with_another_leader_epoch_is_fenced(epoch: int) -> None:
    harness = DamagedLeader(*ALL)
    harness.flip(60)
    assert harness.check(epoch=epoch) is ErrorCode.FENCED_LEADER_EPOCH
    assert harness.damaged == []


@pytest.mark.parametrize(("byte_in_batch", "kept"), [(60, 2), (16, 0)], ids=["record", "magic"])
def test_a_replaced_leader_truncates_the_damage_and_fetches_it_again(
    byte_in_batch: int, kept: int
) -> None:
    harness = DamagedLeader(*ALL)
    harness.flip(byte_in_batch)
    harness.check(offset=2)
    harness.leader_and_isr(P0, leader=OTHER, replicas=ALL, in_sync=(OTHER, THIRD), epoch=2)
    assert harness.partition().log_end_offset == kept
    assert harness.partition().damaged_at is None
    (fetch,) = harness.replicas.follower_state.list_wanted(OTHER)
    assert fetch.offset == kept


def test_damage_below_the_log_start_truncates_nothing() -> None:
    harness = DamagedLeader(ME)
    harness.flip(60)
    harness.check()
    assert harness.partition().damaged_at == 2
    harness.partition().log.delete_before(Offset(3))
    harness.leader_and_isr(P0, leader=OTHER, replicas=ALL, in_sync=(OTHER,), epoch=2)
    log = harness.partition().log
    assert (log.log_start_offset, log.log_end_offset) == (3, 4)
    assert harness.partition().damaged_at is None


def test_a_damaged_leader_that_follows_within_the_isr_keeps_its_records() -> None:
    harness = DamagedLeader(*ALL)
    harness.flip(60)
    harness.check()
    harness.leader_and_isr(P0, leader=OTHER, replicas=ALL, in_sync=ALL, epoch=2)
    assert harness.partition().log_end_offset == 4
