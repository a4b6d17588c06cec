"""The broker that the misbehaving clients of a module share, checked after each test."""

from collections.abc import Iterator

import pytest

pytest.register_assert_rewrite("tests.scenarios.watched_broker")

from tests.scenarios.watched_broker import WatchedBroker, watched_broker  # noqa: E402


@pytest.fixture(scope="module")
def watched(request: pytest.FixtureRequest) -> Iterator[WatchedBroker]:
    """Starts a broker with the module's SETTINGS, if it has any."""
    with watched_broker(getattr(request.module, "SETTINGS", {})) as broker:
        yield broker


@pytest.fixture
def broker(watched: WatchedBroker) -> Iterator[WatchedBroker]:
    yield watched
    watched.check()
