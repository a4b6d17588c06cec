"""When a request to stop the broker is urgent."""

from penstock.model.stop_requests import TOGETHER_S, StopRequests


def test_the_first_request_is_never_urgent() -> None:
    assert not StopRequests().is_urgent(1e9)


def test_requests_at_about_the_same_time_are_not_urgent() -> None:
    requests = StopRequests()
    requests.is_urgent(5.0)
    assert not requests.is_urgent(5.0)
    assert not requests.is_urgent(5.0 + TOGETHER_S)


def test_a_later_request_is_urgent_however_many_came_first() -> None:
    requests = StopRequests()
    for now_s in (5.0, 5.1, 5.9):
        requests.is_urgent(now_s)
    assert requests.is_urgent(5.1 + TOGETHER_S)
