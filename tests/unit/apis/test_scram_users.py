"""DescribeUserScramCredentials and AlterUserScramCredentials: Kafka's errors, and no secret."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.apis.harness import ApiHarness, build, read_part

from penstock.metadata_store.errors import ConnectionLoss
from penstock.model.errors import ErrorCode, get_error
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.frames import encode_request_frame
from penstock.protocol.headers import read_response_header
from penstock.protocol.messages import decode_response, get_request_schema
from penstock.protocol.scram import ScramClient, ScramMechanism, salted_password
from penstock.security.sasl.scram import ScramExchange
from penstock.security.sasl.scram_users import ScramUsers

ALTER, DESCRIBE = ApiKey.ALTER_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
_SALT = b"salt of a user"


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> Iterator[ApiHarness]:
    harness = ApiHarness(tmp_path)
    yield harness
    harness.close()


def upsertion(name: str, mechanism: ScramMechanism = SHA_256, **changes: Any) -> dict[str, Any]:
    salted = salted_password(mechanism, f"secret of {name}", salt=_SALT, iterations=4096)
    return {
        "name": name,
        "mechanism": mechanism.code,
        "iterations": 4096,
        "salt": _SALT,
        "salted_password": salted,
        **changes,
    }


def deletion(name: str, mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


def alter(harness: ApiHarness, *wanted: dict[str, Any]) -> dict[str, ErrorCode]:
    upsertions = [change for change in wanted if "salt" in change]
    deletions = [change for change in wanted if "salt" not in change]
    answer = harness.ask(ALTER, 0, upsertions=upsertions, deletions=deletions)
    assert all((result.error_message is None) is not result.error_code for result in answer.results)
    return {result.user: get_error(result.error_code) for result in answer.results}


def describe(harness: ApiHarness, *names: str) -> dict[str, Any]:
    users = [{"name": name} for name in names] or None
    answer = harness.ask(DESCRIBE, 0, users=users)
    assert answer.error_code == ErrorCode.NONE
    return {
        result.user: get_error(result.error_code)
        if result.error_code
        else {info.mechanism: info.iterations for info in result.credential_infos}
        for result in answer.results
    }


def test_a_user_that_is_created_can_log_in(harness: ApiHarness) -> None:
    assert alter(harness, upsertion("ada"), upsertion("ada", SHA_512)) == {"ada": ErrorCode.NONE}
    assert describe(harness) == {"ada": {1: 4096, 2: 4096}}
    users = ScramUsers()
    users.replace("ada", harness.scram_users.users["ada"])
    for mechanism in ScramMechanism:
        client = ScramClient(mechanism, "ada", "secret of ada")
        exchange = ScramExchange(mechanism, users)
        final = exchange.evaluate(client.final(exchange.evaluate(client.first()).token))
        assert final.user == "ada"


def test_a_credential_is_replaced_and_deleted(harness: ApiHarness) -> None:
    alter(harness, upsertion("ada"), upsertion("ada", SHA_512))
    assert alter(harness, upsertion("ada", iterations=8192)) == {"ada": ErrorCode.NONE}
    assert describe(harness, "ada") == {"ada": {1: 8192, 2: 4096}}
    assert alter(harness, deletion("ada", 2)) == {"ada": ErrorCode.NONE}
    assert describe(harness, "ada") == {"ada": {1: 8192}}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("a" * 1001), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ada", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ada", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ada", salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsertion("ada", salted_password=b"short"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ({**upsertion("ada"), "mechanism": 0}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("ada", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (deletion("ada"), ErrorCode.RESOURCE_NOT_FOUND),
    ],
)
def test_what_cannot_be_is_refused_and_others_are_altered(
    harness: ApiHarness, change: dict[str, Any], code: ErrorCode
) -> None:
    assert alter(harness, change, upsertion("bob")) == {
        change["name"]: code,
        "bob": ErrorCode.NONE,
    }
    assert set(harness.scram_users.users) == {"bob"}


def test_a_mechanism_of_a_user_is_altered_once_in_a_request(harness: ApiHarness) -> None:
    assert alter(harness, upsertion("ada"), deletion("ada")) == {
        "ada": ErrorCode.DUPLICATE_RESOURCE
    }
    assert harness.scram_users.users == {}


def test_users_are_described_one_by_one_with_their_errors(harness: ApiHarness) -> None:
    alter(harness, upsertion("ada"), upsertion("bob"))
    assert describe(harness, "ada", "bob", "bob", "carol") == {
        "ada": {1: 4096},
        "bob": ErrorCode.DUPLICATE_RESOURCE,
        "carol": ErrorCode.RESOURCE_NOT_FOUND,
    }


def test_a_metadata_store_that_does_not_answer_is_a_timeout(harness: ApiHarness) -> None:
    harness.scram_users.error = ConnectionLoss("gone")
    assert alter(harness, upsertion("ada")) == {"ada": ErrorCode.REQUEST_TIMED_OUT}
    answer = harness.ask(DESCRIBE, 0, users=[{"name": "ada"}])
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_a_byte_too_many_of_librdkafka_is_ignored(harness: ApiHarness) -> None:
    frame = bytearray(encode_upsertion("bob") + b"\0")
    in_flight = harness.send_frame(frame)
    _, body = read_response_header(b"".join(map(read_part, in_flight.parts))[4:], ALTER, 0)
    [result] = decode_response(ALTER, 0, body).results
    assert (result.user, result.error_code) == ("bob", ErrorCode.NONE)


def encode_upsertion(name: str) -> bytes:
    message = build(
        get_request_schema(ALTER, 0), {"deletions": [], "upsertions": [upsertion(name)]}
    )
    return encode_request_frame(message, correlation_id=1, client_id="rdkafka")[4:]


def test_neither_a_response_nor_the_log_has_a_salt_or_a_key(harness: ApiHarness) -> None:
    alter(harness, upsertion("ada"))
    [(_, credential)] = harness.scram_users.users["ada"].items()
    shown = harness.send(DESCRIBE, 0, users=None).bytes + "\n".join(harness.reports).encode()
    assert b"ada" in shown
    for secret in (credential.salt, credential.stored_key, credential.server_key):
        assert secret not in shown
        assert secret.hex().encode() not in shown
