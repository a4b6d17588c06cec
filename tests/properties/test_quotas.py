"""Quotas against naive models: the windowed rate, the token bucket, paced connections, and which of
the eight levels applies."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profile import scaled

from penstock.model.quotas import (
    DEFAULT_ENTITY,
    InvalidQuota,
    QuotaEntity,
    QuotaKey,
    check_value,
    is_rate,
)
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.security.quotas.levels import QuotaBound, find_client_bound
from penstock.security.quotas.rates import PacedRate, RateWindow, TokenBucket, WindowedRate

CASES = scaled(test=200, verify=2_000, release=20_000)
windows = st.builds(
    RateWindow, samples=st.integers(1, 12), sample_ms=st.sampled_from((1, 100, 1000, 5000))
)
bounds = st.floats(0.01, 1e9, allow_nan=False)


# -- rates ---------------------------------------------------------------------------------------


class NaiveRate:
    """Keeps every use; a sample begins with the first use after the one before has ended."""

    def __init__(self, window: RateWindow) -> None:
        self.window = window
        self.uses: list[tuple[int, int, float]] = []  # when, start of its sample, units

    def record(self, units: float, now_ms: int) -> None:
        start_ms = self.uses[-1][1] if self.uses else now_ms
        if not self.kept(now_ms) or now_ms - start_ms >= self.window.sample_ms:
            start_ms = now_ms
        self.uses.append((now_ms, start_ms, units))

    def kept(self, now_ms: int) -> list[tuple[int, int, float]]:
        return [use for use in self.uses if use[1] > now_ms - self.window.total_ms]

    def elapsed_ms(self, now_ms: int) -> int:
        kept = self.kept(now_ms)
        elapsed_ms = now_ms - kept[0][1] if kept else 0
        whole = elapsed_ms // self.window.sample_ms
        lacking = max(self.window.samples - 1 - whole, 0)
        return max(elapsed_ms + lacking * self.window.sample_ms, 1)

    def measure(self, now_ms: int) -> float:
        return sum(use[2] for use in self.kept(now_ms)) * 1000 / self.elapsed_ms(now_ms)


uses = st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 10**9)), max_size=60)


@settings(max_examples=CASES)
@given(window=windows, bound=bounds, steps=uses)
def test_rate_and_throttle_are_those_of_a_model_that_forgets_nothing(
    window: RateWindow, bound: float, steps: list[tuple[int, int]]
) -> None:
    rate, naive, now_ms = WindowedRate(window), NaiveRate(window), 0
    for pause_ms, units in steps:
        now_ms += pause_ms
        rate.record(units, now_ms)
        naive.record(units, now_ms)
        assert rate.measure(now_ms) == naive.measure(now_ms)
        measured, elapsed_ms = naive.measure(now_ms), naive.elapsed_ms(now_ms)
        expected = round((measured - bound) / bound * elapsed_ms) if measured > bound else 0
        assert rate.throttle_ms(bound, now_ms) == expected


@settings(max_examples=CASES)
@given(window=windows, steps=uses, taken_back=st.integers(1, 10**9))
def test_what_is_taken_back_leaves_no_trace(
    window: RateWindow, steps: list[tuple[int, int]], taken_back: int
) -> None:
    rate, now_ms = WindowedRate(window), 0
    for pause_ms, units in steps:
        now_ms += pause_ms
        rate.record(units, now_ms)
    before = rate.measure(now_ms)
    rate.record(taken_back, now_ms)
    rate.record(-taken_back, now_ms)
    assert rate.measure(now_ms) == before or before == 0
    assert rate.measure(now_ms + window.total_ms + window.sample_ms) == 0


@settings(max_examples=CASES)
@given(
    bound=st.integers(1_000, 10**8),
    requests=st.lists(st.floats(0.001, 1.0), min_size=50, max_size=300),
)
def test_a_client_that_waits_as_told_stays_near_its_bound(
    bound: int, requests: list[float]
) -> None:
    """Each request has what the bound allows in up to a second. However many there are, the bound
    is exceeded by a window's worth at most, and by the requests that find the window full."""
    window = RateWindow()
    rate, now_ms, sent = WindowedRate(window), 0, 0.0
    for part in requests:
        rate.record(part * bound, now_ms)
        sent += part * bound
        assert sent <= bound * (now_ms + 2 * window.total_ms) / 1000
        now_ms += rate.throttle_ms(bound, now_ms)


@settings(max_examples=CASES)
@given(
    bound=st.floats(0.1, 1000), steps=st.lists(st.tuples(st.integers(0, 5_000), st.integers(1, 50)))
)
def test_a_bucket_gives_no_more_than_it_gets(bound: float, steps: list[tuple[int, int]]) -> None:
    window = RateWindow()
    bucket, now_ms, taken = TokenBucket(window, bound, 0), 0, 0
    for pause_ms, count in steps:
        now_ms += pause_ms
        full = bound * (window.total_ms + now_ms) / 1000
        if bucket.try_take(count, bound, now_ms):
            assert taken <= full + 1e-6  # before it, for it may overdraw
            taken += count
        else:
            wait_ms = bucket.throttle_ms(bound, now_ms)
            assert wait_ms >= 0
            now_ms += wait_ms + 1
            assert bucket.throttle_ms(bound, now_ms) == 0


@settings(max_examples=CASES)
@given(bound=st.floats(0.05, 1000), pauses=st.lists(st.integers(0, 3_000), min_size=1))
def test_connections_pass_at_the_bound_after_a_window_of_them(
    bound: float, pauses: list[int]
) -> None:
    window, paced, now_ms = RateWindow(), PacedRate(), 0
    passing: list[int] = []
    for pause_ms in pauses:
        now_ms += pause_ms
        delay_ms = paced.delay_ms(bound, window, now_ms)
        if delay_ms <= window.total_ms:
            passing.append(now_ms + delay_ms)
    assert all(earlier <= later for earlier, later in pairwise(sorted(passing)))
    for count, passes_ms in enumerate(passing, 1):
        early_ms = max(window.total_ms, 1000 / bound)
        assert count <= bound * (passes_ms + early_ms) / 1000 + 1.001


# -- levels --------------------------------------------------------------------------------------

names = st.sampled_from(("a", "b", DEFAULT_ENTITY))
entities = st.one_of(
    st.builds(QuotaEntity, names, names, st.none()),
    st.builds(QuotaEntity, names, st.none(), st.none()),
    st.builds(QuotaEntity, st.none(), names, st.none()),
)


def _matches(entity: QuotaEntity, user: str, client_id: str) -> bool:
    return entity.user in (None, DEFAULT_ENTITY, user) and entity.client_id in (
        None,
        DEFAULT_ENTITY,
        client_id,
    )


def _specificity(entity: QuotaEntity) -> tuple[int, int]:
    """A named user first, then a named client; a default before no part at all."""
    return _part(entity.user), _part(entity.client_id)


def _part(name: str | None) -> int:
    if name is None:
        return 0
    return 1 if name == DEFAULT_ENTITY else 2


@settings(max_examples=CASES)
@given(
    stored=st.dictionaries(entities, st.floats(1, 100)),
    user=st.sampled_from(("a", "b", "c")),
    client_id=st.sampled_from(("a", "b", "c")),
)
def test_the_most_specific_level_applies_and_user_comes_before_client(
    stored: dict[QuotaEntity, float], user: str, client_id: str
) -> None:
    limit = find_client_bound(stored, user, client_id)
    matching = [entity for entity in stored if _matches(entity, user, client_id)]
    if not matching:
        assert limit is None
        return
    best = max(matching, key=_specificity)
    shared = QuotaEntity(
        None if best.user is None else user, None if best.client_id is None else client_id
    )
    assert limit == QuotaBound(stored[best], shared)


@settings(max_examples=CASES)
@given(
    stored=st.dictionaries(
        entities, st.dictionaries(st.sampled_from(QuotaKey), st.floats(1, 100)), max_size=6
    ),
)
def test_quotas_are_active_only_if_there_are_some(
    stored: dict[QuotaEntity, dict[QuotaKey, float]],
) -> None:
    quotas = ClientQuotas()
    quotas.replace(stored)
    keys = {key for values in stored.values() for key in values}
    assert quotas.limits_connections == (QuotaKey.CONNECTION_CREATION_RATE in keys)
    assert quotas.is_active == bool(keys - {QuotaKey.CONNECTION_CREATION_RATE})
    quotas.replace({})
    assert not quotas.is_active
    assert not quotas.limits_connections


@settings(max_examples=CASES)
@given(rate=st.floats(min_value=0, allow_nan=False), units=st.integers(1, 2**31))
def test_any_rate_that_is_taken_can_be_enforced(rate: float, units: int) -> None:
    """An error here would end requests, or a timer of the broker."""
    quotas = ClientQuotas()
    taken = {key: rate for key in QuotaKey if is_rate(repr(rate)) or _is_taken(key, rate)}
    quotas.replace({QuotaEntity("ada"): taken, QuotaEntity(ip=DEFAULT_ENTITY): taken})
    for now_ms in (0, 1):
        assert quotas.use_producer_bytes("ada", "", units, now_ms) >= 0
        assert quotas.use_consumer_bytes("ada", "", units, now_ms) >= 0
        assert quotas.use_request_time("ada", "", units / 1e6, now_ms) >= 0
        assert quotas.try_use_mutations("ada", "", units, now_ms, must_succeed=True)[1] >= 0
        assert quotas.use_connection("10.0.0.9", now_ms) >= 0
        assert (quotas.find_fetch_limit("ada", "") or 1) >= 1


def _is_taken(key: QuotaKey, rate: float) -> bool:
    try:
        return check_value(key, rate) > 0
    except InvalidQuota:
        return False
