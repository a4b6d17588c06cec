"""ApiVersions: what a client learns before anything else."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness

from penstock.apis.cluster.api_versions import encode_body
from penstock.apis.registry import APIS
from penstock.apis.response_shapes import response_shape
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.messages import encode

KEY = ApiKey.API_VERSIONS
SOFTWARE: dict[str, Any] = {
    "client_software_name": "librdkafka",
    "client_software_version": "2.16.1",
}


@pytest.mark.parametrize("version", APIS[KEY].versions)
def test_every_version_lists_the_whole_registry(harness: ApiHarness, version: int) -> None:
    reply = harness.ask(KEY, version, **SOFTWARE)
    assert reply.error_code == 0
    listed = {key.api_key: (key.min_version, key.max_version) for key in reply.api_keys}
    assert listed == {key.value: (api.versions[0], api.versions[-1]) for key, api in APIS.items()}


@pytest.mark.parametrize("version", APIS[KEY].versions)
@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.UNSUPPORTED_VERSION])
@pytest.mark.parametrize("count", [0, 1, len(ApiKey)])
def test_the_bytes_are_those_of_the_generic_encoder(
    version: int, error: ErrorCode, count: int
) -> None:
    served = {key: range(key % 3, 7) for key in list(ApiKey)[:count]}
    shape = response_shape(KEY, version)
    keys = tuple(
        shape["api_keys"](api_key=key.value, min_version=key % 3, max_version=6)
        for key in sorted(served)
    )
    message = shape(error_code=error, api_keys=keys, throttle_time=timedelta())
    assert encode_body(version, error, served) == encode(message)


@pytest.mark.parametrize("version", [3, 4])
def test_the_bytes_of_features_are_those_of_the_generic_encoder(version: int) -> None:
    features = {"of.old": range(1, 4), "from.zero": range(3)}
    returned = features if version >= 4 else {"of.old": features["of.old"]}
    shape = response_shape(KEY, version)
    message = shape(
        error_code=ErrorCode.NONE,
        api_keys=(),
        throttle_time=timedelta(),
        supported_features=tuple(
            shape["supported_features"](name=name, min_version=item[0], max_version=item[-1])
            for name, item in returned.items()
        ),
        finalized_features_epoch=1,
        finalized_features=tuple(
            shape["finalized_features"](
                name=name, max_version_level=feature[-1], min_version_level=feature[-1]
            )
            for name, feature in features.items()
        ),
    )
    assert encode_body(version, ErrorCode.NONE, {}, features) == encode(message)


@pytest.mark.parametrize("version", [5, 99, -1, 2**15 - 1])
def test_an_unknown_version_gets_a_response_of_version_0(harness: ApiHarness, version: int) -> None:
    """The body of an unknown version is not decoded."""
    expected = 3 if version > 3 else 0
    sent = harness.send(KEY, expected, as_version=version, **SOFTWARE)
    reply = sent.read(0)
    assert reply.error_code == 35
    assert {key.api_key for key in reply.api_keys} == {key.value for key in APIS}


@pytest.mark.parametrize("name", ["", "-x", "x-", "a b", "a\n", "é", "x" * 100 + "_"])
@pytest.mark.parametrize("field", ["client_software_name", "client_software_version"])
def test_invalid_software_names_are_refused(harness: ApiHarness, field: str, name: str) -> None:
    reply = harness.ask(KEY, 3, **{**SOFTWARE, field: name})
    assert (reply.error_code, reply.api_keys) == (42, ())


@pytest.mark.parametrize("name", ["a", "7", "apache-kafka-java", "3.9.0-SNAPSHOT", "a.b-c.1"])
def test_valid_software_names_are_accepted(harness: ApiHarness, name: str) -> None:
    software = {"client_software_name": name, "client_software_version": name}
    assert harness.ask(KEY, 4, **software).error_code == 0


def levels_of(features: Any) -> dict[str, tuple[int, int]]:
    return {feature.name: (feature.min_version, feature.max_version) for feature in features}


def test_clients_may_rely_on_transactions_v2(harness: ApiHarness) -> None:
    reply = harness.ask(KEY, 4, **SOFTWARE)
    assert levels_of(reply.supported_features) == {"transaction.version": (0, 2)}
    (result,) = reply.finalized_features
    assert (result.name, result.min_version_level, result.max_version_level) == (
        "transaction.version",
        2,
        2,
    )
    assert reply.finalized_features_epoch >= 0


def test_a_feature_with_minimum_0_is_hidden_from_clients_that_reject_it(
    harness: ApiHarness,
) -> None:
    """KAFKA-17492. Finalized features are not affected."""
    reply = harness.ask(KEY, 3, **SOFTWARE)
    assert reply.supported_features == ()
    assert [feature.name for feature in reply.finalized_features] == ["transaction.version"]


def test_a_refused_client_gets_no_features(harness: ApiHarness) -> None:
    reply = harness.ask(KEY, 4, **{**SOFTWARE, "client_software_name": "-"})
    assert (reply.supported_features, reply.finalized_features) == ((), ())


def test_api_versions_needs_no_permission(harness: ApiHarness) -> None:
    harness.guard.denies_all = True
    assert harness.ask(KEY, 4, **SOFTWARE).error_code == 0
    assert harness.guard.checked == []
