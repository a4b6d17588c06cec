"""A consumer group's own settings override the broker's."""

from tests.unit.coordinators.group.consumer_harness import (
    GROUP,
    Consumer,
    ConsumerGroupHarness,
)

from penstock.coordinators.group.config import GroupConfig

_OWN = {"consumer.session.timeout.ms": "7000", "consumer.heartbeat.interval.ms": "700"}


def _has_member_after_ms(by_group: dict[str, dict[str, str]], silence_ms: int) -> bool:
    harness = ConsumerGroupHarness(GroupConfig(by_group=by_group), orders=1)
    Consumer(harness, "anna").join()
    harness.pass_time(silence_ms)
    return "anna" in harness.consumer.members


def test_a_member_expires_after_its_groups_session_timeout() -> None:
    assert _has_member_after_ms({GROUP: _OWN}, 6999)
    assert not _has_member_after_ms({GROUP: _OWN}, 7001)
    assert _has_member_after_ms({"another": _OWN}, 7001)


def test_a_member_gets_its_groups_heartbeat_interval() -> None:
    harness = ConsumerGroupHarness(GroupConfig(by_group={GROUP: _OWN}), orders=1)
    assert Consumer(harness, "anna").join().heartbeat_interval_ms == 700
