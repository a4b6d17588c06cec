"""Transaction verifications: which ones are still valid."""

from penstock.replication.transaction_verification import Verifications


def test_a_verification_is_valid_if_no_marker_came_since() -> None:
    verifications = Verifications()
    first, second = verifications.begin(7, 0), verifications.begin(7, 0)
    assert verifications.end(first)
    assert verifications.end(second)
    assert len(verifications) == 0


def test_a_marker_invalidates_all_verifications_of_its_producer_only() -> None:
    verifications = Verifications()
    before, other = verifications.begin(7, 0), verifications.begin(8, 0)
    verifications.on_marker(7, 0)
    after = verifications.begin(7, 0)
    assert not verifications.end(before)
    assert verifications.end(after)
    assert verifications.end(other)
    assert len(verifications) == 0


def test_a_late_marker_keeps_verifications_of_a_later_epoch() -> None:
    verifications = Verifications()
    old, new = verifications.begin(7, 32766), verifications.begin(7, 32767)
    verifications.on_marker(7, 32766)
    assert not verifications.end(old)
    assert verifications.end(new)
