"""What it costs to decode a request that is filled to its limits, and to refuse a larger one."""

import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.unit.protocol.filled_requests import Filling, Path, fill, list_arrays

from penstock.apis.api import Api
from penstock.apis.registry import APIS
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.malformed import MalformedRequest, RequestOverLimit
from penstock.protocol.messages import decode_request, get_request_schema
from penstock.protocol.produce_request import OLD_VERSIONS, read_produce_request
from penstock.protocol.request_budget import MAX_ELEMENTS, MAX_TAGGED_FIELDS, RequestBudget
from penstock.protocol.schemas import WireMessage

ROUNDS = 3
SAMPLE = 1000
TAGGED_FIELDS = "tagged fields"
REQUEST_MAX_BYTES = 4 << 20  # penstock.request.max.bytes
SOCKET_MAX_BYTES = 100 << 20  # socket.request.max.bytes
GOAL_MS, GOAL_MB = 50, 20


class Filled(NamedTuple):
    """A request of one API: which array of which version is full, and the body."""

    key: ApiKey
    version: int
    field: str
    body: bytes


def measure() -> tuple[dict[str, Any], dict[ApiKey, Filled]]:
    """Results by API, and for each the request at its limit that takes longest to decode."""
    results: dict[str, Any] = {}
    worst: dict[ApiKey, Filled] = {}
    for key, api in APIS.items():
        samples = list(_samples(api))
        if not samples:
            continue
        slowest = max(samples, key=lambda sample: _estimate_ms(api, sample))
        at_limit = worst[key] = _at_limit(api, slowest)
        results[key.title] = {
            "version": slowest.version,
            "field": slowest.field,
            "at_limit": _measure(api, at_limit),
            "above_limit": _measure(api, _above_limit(api, slowest)),
        }
    return results, worst


def summarize(results: dict[str, Any]) -> dict[str, Any]:
    costs = [api[name] for api in results.values() for name in ("at_limit", "above_limit")]
    return {
        "goal": {"cpu_ms": GOAL_MS, "memory_mb": GOAL_MB},
        "worst_cpu_ms": max(cost["cpu_ms"] for cost in costs),
        "worst_memory_mb": max(cost["memory_mb"] for cost in costs),
    }


def _samples(api: Api) -> Iterator[Filled]:
    """Every array of every version with a few elements, to find the slowest."""
    key = api.key
    assert isinstance(key, ApiKey)
    for version in api.versions:
        if key is ApiKey.PRODUCE and version in OLD_VERSIONS:
            continue
        schema = get_request_schema(key, version)
        for path in list_arrays(schema):
            yield Filled(key, version, ".".join(path), fill(schema, Filling(path, SAMPLE)))
        if schema.__flexible__:
            tagged = Filling((), 0, tagged_fields=SAMPLE)
            yield Filled(key, version, TAGGED_FIELDS, fill(schema, tagged))


def _estimate_ms(api: Api, sample: Filled) -> float:
    """The time of a request that is full of what the sample has."""
    sample_ms = _decode_ms(api, sample, rounds=ROUNDS)
    if sample.field == TAGGED_FIELDS:
        return sample_ms * MAX_TAGGED_FIELDS / SAMPLE
    return sample_ms * MAX_ELEMENTS / _used(api, sample.version, sample.body)


def _at_limit(api: Api, sample: Filled) -> Filled:
    schema = get_request_schema(sample.key, sample.version)
    if sample.field == TAGGED_FIELDS:
        return sample._replace(body=fill(schema, Filling((), 0, tagged_fields=MAX_TAGGED_FIELDS)))
    path = tuple(sample.field.split("."))
    return sample._replace(body=fill(schema, Filling(path, _largest_count(api, schema, path))))


def _largest_count(api: Api, schema: type[WireMessage], path: Path) -> int:
    """How many elements of this array the budget allows."""
    bodies = [fill(schema, Filling(path, count)) for count in (1, 2)]
    one, two = (_used(api, schema.__version__, body) for body in bodies)
    return (_max_elements(api) - one) // (two - one) + 1


def _max_elements(api: Api) -> int:
    return int(MAX_ELEMENTS * api.elements_share)


def _used(api: Api, version: int, body: bytes) -> int:
    budget = RequestBudget()
    _decode(api, version, memoryview(body), budget)
    return budget.used_elements


def _above_limit(api: Api, filled: Filled) -> Filled:
    """The same array, as long as the largest frame of this API can hold it."""
    most = SOCKET_MAX_BYTES if filled.key is ApiKey.PRODUCE else REQUEST_MAX_BYTES
    limit_bytes = max(most, min(api.max_frame_bytes, SOCKET_MAX_BYTES))
    schema = get_request_schema(filled.key, filled.version)
    return filled._replace(body=_fill_bytes(schema, filled.field, limit_bytes - 100))


def _fill_bytes(schema: type[WireMessage], field: str, size_bytes: int) -> bytes:
    if field == TAGGED_FIELDS:
        return fill(schema, Filling((), 0, tagged_fields=size_bytes // 5))
    path = tuple(field.split("."))
    one, two = (len(fill(schema, Filling(path, count))) for count in (1, 2))
    return fill(schema, Filling(path, size_bytes // (two - one)))


def _measure(api: Api, filled: Filled) -> dict[str, Any]:
    return {
        "frame_bytes": len(filled.body),
        "is_refused": _is_refused(api, filled),
        "cpu_ms": round(_decode_ms(api, filled, rounds=ROUNDS), 2),
        "memory_mb": round(_decode_mb(api, filled), 2),
    }


def _decode_ms(api: Api, filled: Filled, *, rounds: int) -> float:
    best_s = 1e9
    for _ in range(rounds):
        started_s = time.thread_time()
        _is_refused(api, filled)
        best_s = min(best_s, time.thread_time() - started_s)
    return best_s * 1000


def _decode_mb(api: Api, filled: Filled) -> float:
    """The most that is allocated at once, besides the frame itself."""
    tracemalloc.start()
    try:
        _is_refused(api, filled)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def _is_refused(api: Api, filled: Filled) -> bool:
    try:
        budget = RequestBudget(_max_elements(api))
        _decode(api, filled.version, memoryview(filled.body), budget)
    except RequestOverLimit:
        return True
    return False


def _decode(api: Api, version: int, body: memoryview, budget: RequestBudget) -> Any:
    """Decode as the dispatcher and the handlers do."""
    if api.key is ApiKey.PRODUCE:
        return _decode_produce(version, body, budget)
    if api.read is not None:
        return api.read(body, version, budget)
    return decode_request(api.key, version, body, budget)


def _decode_produce(version: int, body: memoryview, budget: RequestBudget) -> Any:
    try:
        return read_produce_request(body, version, budget)
    except RequestOverLimit:
        raise
    except MalformedRequest:
        return None  # at its end: the smallest elements name the same partition again
