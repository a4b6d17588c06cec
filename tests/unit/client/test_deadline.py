from penstock.client.deadline import Deadline, backoff_ms
from penstock.client.errors import ConnectFailed


def test_backoff_doubles_up_to_its_maximum_with_jitter_of_a_fifth() -> None:
    for failures, exact in [(1, 50), (2, 100), (3, 200), (6, 1_000), (50, 1_000), (10**9, 1_000)]:
        for _ in range(20):
            wait = backoff_ms(failures, first_ms=50, most_ms=1_000)
            assert exact * 0.79 <= wait <= exact * 1.21


def test_the_first_attempt_has_no_backoff() -> None:
    assert backoff_ms(0, first_ms=50, most_ms=1_000) == 0


def test_the_brokers_timeout_is_shorter_than_the_clients() -> None:
    deadline = Deadline(20_000)
    assert 18_900 <= deadline.left_for_broker_ms <= 19_000
    assert 19_900 <= deadline.left_ms <= 20_000
    assert Deadline(0).left_for_broker_ms == 0


def test_a_timeout_names_the_last_error() -> None:
    last = ConnectFailed("a:1", "connection refused")
    error = Deadline(1_500).out_of_time("produce to t-0", last)
    assert str(error) == (
        "produce to t-0: not done within 1.5 s; "
        "last: cannot reach a broker at a:1: connection refused"
    )
    assert error.__cause__ is last
