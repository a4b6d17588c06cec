"""DescribeClientQuotas and AlterClientQuotas: filters, results for each entity, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.registry import APIS
from penstock.controller.acl_store import TooManyChanges
from penstock.metadata_store.errors import ConnectionLoss, DamagedZnode
from penstock.model.errors import ErrorCode
from penstock.model.quotas import DEFAULT_ENTITY, QuotaEntity, QuotaKey, QuotaOperation, Quotas
from penstock.protocol.api_keys import ApiKey

DESCRIBE, ALTER = ApiKey.DESCRIBE_CLIENT_QUOTAS, ApiKey.ALTER_CLIENT_QUOTAS
RATE = {QuotaKey.PRODUCER_BYTE_RATE: 1000.0}
EXACT, DEFAULT, ANY = range(3)
ADA, BOTH = QuotaEntity("ada"), QuotaEntity("ada", "app")
EVERY_USER, EVERY_CLIENT = QuotaEntity(DEFAULT_ENTITY), QuotaEntity(None, DEFAULT_ENTITY)
ADDRESS = QuotaEntity(ip="10.0.0.7")


class FakeQuotas:
    """Keeps quotas in memory, or fails as a metadata store does."""

    def __init__(self) -> None:
        self.stored: dict[QuotaEntity, Quotas] = {}
        self.error: Exception | None = None

    def quotas(self) -> Mapping[QuotaEntity, Quotas]:
        return self.stored

    async def alter(self, entity: QuotaEntity, operations: Sequence[QuotaOperation]) -> None:
        if self.error is not None:
            raise self.error
        values = dict(self.stored.get(entity, {}))
        for key, value in operations:
            values.pop(key, None)
            if value is not None:
                values[key] = value
        self.stored[entity] = values


@pytest.fixture(name="quotas")
def _quotas() -> FakeQuotas:
    return FakeQuotas()


@pytest.fixture(name="harness")
def _harness(tmp_path: Path, quotas: FakeQuotas) -> Iterator[ApiHarness]:
    harness = ApiHarness(tmp_path)
    harness.services = replace(harness.services, stored_quotas=quotas)
    harness.dispatcher = Dispatcher(APIS, harness.services)
    yield harness
    harness.close()


def component(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def parts(entity: QuotaEntity) -> list[dict[str, Any]]:
    return [
        {"entity_type": kind, "entity_name": name or None} for kind, name in entity.parts().items()
    ]


def entry(entity: QuotaEntity, **values: float | None) -> dict[str, Any]:
    operations = [
        {"key": key, "value": value or 0.0, "remove": value is None}
        for key, value in values.items()
    ]
    return {"entity": parts(entity), "ops": operations}


@pytest.mark.parametrize("version", APIS[DESCRIBE].versions)
@pytest.mark.parametrize(
    ("components", "strict", "matching"),
    [
        ([], False, {ADA, BOTH, EVERY_USER, EVERY_CLIENT, ADDRESS}),
        ([], True, set()),
        ([component("user", EXACT, "ada")], False, {ADA, BOTH}),
        ([component("user", EXACT, "ada")], True, {ADA}),
        ([component("user", DEFAULT)], False, {EVERY_USER}),
        ([component("user", ANY)], False, {ADA, BOTH, EVERY_USER}),
        ([component("user", ANY), component("client-id", ANY)], True, {BOTH}),
        ([component("client-id", DEFAULT)], False, {EVERY_CLIENT}),
        ([component("ip", ANY)], False, {ADDRESS}),
        ([component("user", EXACT, "bob")], False, set()),
    ],
)
def test_a_filter_finds_its_entities(
    harness: ApiHarness,
    quotas: FakeQuotas,
    version: int,
    components: list[Any],
    strict: bool,
    matching: set[QuotaEntity],
) -> None:
    everything = (ADA, BOTH, EVERY_USER, EVERY_CLIENT, ADDRESS)
    quotas.stored = dict.fromkeys(everything, RATE)
    reply = harness.ask(DESCRIBE, version, components=components, strict=strict)
    assert (reply.error_code, reply.error_message) == (0, None)
    described = [
        {part.entity_type: part.entity_name for part in entry.entity} for entry in reply.entries
    ]
    wanted = [
        {kind: name or None for kind, name in entity.parts().items()}
        for entity in everything
        if entity in matching
    ]
    assert described == wanted
    for described_entry in reply.entries:
        [value] = described_entry.values
        assert (value.key, value.value) == ("producer_byte_rate", 1000.0)


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([component("user", ANY), component("user", DEFAULT)], ErrorCode.INVALID_REQUEST),
        ([component("user", ANY), component("ip", ANY)], ErrorCode.INVALID_REQUEST),
        ([component("", ANY)], ErrorCode.INVALID_REQUEST),
        ([component("user", EXACT)], ErrorCode.INVALID_REQUEST),
        ([component("user", DEFAULT, "ada")], ErrorCode.INVALID_REQUEST),
        ([component("user", 7)], ErrorCode.INVALID_REQUEST),
        ([component("team", ANY)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_filter_that_cannot_be_is_refused(
    harness: ApiHarness, components: list[Any], code: ErrorCode
) -> None:
    reply = harness.ask(DESCRIBE, 1, components=components)
    assert (reply.error_code, reply.entries) == (code, None)
    assert reply.error_message


@pytest.mark.parametrize("version", APIS[ALTER].versions)
def test_quotas_are_set_and_removed_for_each_entity(
    harness: ApiHarness, quotas: FakeQuotas, version: int
) -> None:
    entries = [
        entry(ADA, producer_byte_rate=1000.0, request_percentage=12.5),
        entry(ADDRESS, connection_creation_rate=5.0),
    ]
    reply = harness.ask(ALTER, version, entries=entries)
    assert [result.error_code for result in reply.entries] == [0, 0]
    assert [result.entity[0].entity_name for result in reply.entries] == ["ada", "10.0.0.7"]
    harness.ask(ALTER, version, entries=[entry(ADA, producer_byte_rate=None)])
    assert quotas.stored == {
        ADA: {QuotaKey.REQUEST_PERCENTAGE: 12.5},
        ADDRESS: {QuotaKey.CONNECTION_CREATION_RATE: 5.0},
    }


def test_what_is_only_validated_is_not_stored(harness: ApiHarness, quotas: FakeQuotas) -> None:
    entries = [entry(ADA, producer_byte_rate=1000.0), entry(ADA, producer_byte_rate=-1.0)]
    reply = harness.ask(ALTER, 1, entries=entries, validate_only=True)
    codes = [result.error_code for result in reply.entries]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert quotas.stored == {}


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (entry(QuotaEntity(), producer_byte_rate=1.0), ErrorCode.INVALID_REQUEST),
        (entry(ADDRESS, producer_byte_rate=1.0), ErrorCode.INVALID_REQUEST),
        (entry(ADA, connection_creation_rate=1.0), ErrorCode.INVALID_REQUEST),
        (entry(ADA, producer_byte_rate=1.5), ErrorCode.INVALID_REQUEST),
        (entry(ADA, producer_byte_rate=0.0), ErrorCode.INVALID_REQUEST),
        (entry(ADA, request_percentage=float("nan")), ErrorCode.INVALID_REQUEST),
        (entry(ADA, request_percentage=float("inf")), ErrorCode.INVALID_REQUEST),
        (entry(ADA, bytes_rate=1.0), ErrorCode.INVALID_REQUEST),
        (entry(QuotaEntity(ip="a.host"), connection_creation_rate=1.0), ErrorCode.INVALID_REQUEST),
        (entry(QuotaEntity(None, "c" * 256), producer_byte_rate=1.0), ErrorCode.INVALID_REQUEST),
        (entry(ADA, request_percentage=1e-300), ErrorCode.INVALID_REQUEST),
        (
            entry(QuotaEntity("ada", None, "10.0.0.7"), producer_byte_rate=1.0),
            ErrorCode.INVALID_REQUEST,
        ),
        (
            {"entity": [{"entity_type": "user", "entity_name": ""}], "ops": []},
            ErrorCode.INVALID_REQUEST,
        ),
        ({"entity": [*parts(ADA), *parts(ADA)], "ops": []}, ErrorCode.INVALID_REQUEST),
        (
            {"entity": [{"entity_type": "team", "entity_name": "a"}], "ops": []},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_what_cannot_be_is_refused_and_the_rest_is_done(
    harness: ApiHarness, quotas: FakeQuotas, refused: dict[str, Any], code: ErrorCode
) -> None:
    reply = harness.ask(ALTER, 1, entries=[refused, entry(BOTH, producer_byte_rate=1000.0)])
    first, second = reply.entries
    assert (first.error_code, second.error_code) == (code, ErrorCode.NONE)
    assert first.error_message
    assert quotas.stored == {BOTH: RATE}


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TooManyChanges("others were faster"), ErrorCode.REQUEST_TIMED_OUT),
        (ConnectionLoss(), ErrorCode.REQUEST_TIMED_OUT),
        (DamagedZnode("/config/users/ada", "no JSON"), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_cannot_be_stored_is_an_error(
    harness: ApiHarness, quotas: FakeQuotas, error: Exception, code: ErrorCode
) -> None:
    quotas.error = error
    reply = harness.ask(ALTER, 1, entries=[entry(ADA, producer_byte_rate=1000.0)])
    assert reply.entries[0].error_code == code
