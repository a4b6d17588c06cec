"""A member gives up on ZooKeeper after it has waited for it, not after it has slept."""

from penstock.zookeeper_consumer.silence import ZooKeeperSilence


def test_waits_add_up_to_the_limit() -> None:
    silence = ZooKeeperSilence(10)
    assert [silence.is_over_limit(0.5) for _ in range(21)] == [False] * 20 + [True]


def test_an_answer_begins_anew() -> None:
    silence = ZooKeeperSilence(1)
    for _ in range(10):
        assert not silence.is_over_limit(0.75)
        silence.end()


def test_a_process_that_was_stopped_for_an_hour_has_not_waited_for_an_hour() -> None:
    silence = ZooKeeperSilence(10)
    assert not silence.is_over_limit(3600)
