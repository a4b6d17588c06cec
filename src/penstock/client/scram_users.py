"""Creates, describes and deletes users with SCRAM credentials. Any broker does it.

A password never leaves this process: the broker gets it salted and iterated. Setting a credential
again is safe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from secrets import token_bytes
from typing import Any

from penstock.client.call import Call
from penstock.client.errors import RefusedByBroker
from penstock.client.item_results import settle
from penstock.client.metadata import read_error
from penstock.client.router import Router
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.scram import MIN_ITERATIONS, ScramError, ScramMechanism, salted_password

_SALT_BYTES = 24
_VERSIONS = range(1)
_BY_CODE = {mechanism.code: mechanism.value for mechanism in ScramMechanism}
SCRAM_MECHANISMS = tuple(mechanism.value for mechanism in ScramMechanism)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    name: str
    iterations: dict[str, int]  # by mechanism


class ScramUserClient:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def create(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Sequence[str] = SCRAM_MECHANISMS,
        iterations: int = MIN_ITERATIONS,
        timeout_ms: int | None = None,
    ) -> None:
        """ValueError for a password, a mechanism or iterations that cannot be."""
        if not password:
            raise ValueError("the password is empty")
        upsertions = [
            _salt(name, password, mechanism, iterations) for mechanism in _read(mechanisms)
        ]
        await self._alter(name, {"deletions": [], "upsertions": upsertions}, timeout_ms)

    async def delete(
        self,
        name: str,
        *,
        mechanisms: Sequence[str] | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Without mechanisms all of the user's credentials."""
        if mechanisms is None:
            [user] = await self.describe([name], timeout_ms=timeout_ms)
            mechanisms = tuple(user.iterations)
        deletions = [{"name": name, "mechanism": mechanism.code} for mechanism in _read(mechanisms)]
        await self._alter(name, {"deletions": deletions, "upsertions": []}, timeout_ms)

    async def describe(
        self, names: Sequence[str] = (), *, timeout_ms: int | None = None
    ) -> list[ScramUser]:
        """These, or all of them."""
        users = [{"name": name} for name in names] or None
        call = Call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, _VERSIONS, {"users": users})
        answer = await self._ask("describe users", call, timeout_ms)
        error = _find_error("describe users", answer)
        if error is not None:
            raise error
        described = settle(
            {
                result.user: _find_error(f"describe user {result.user!r}", result) or _user(result)
                for result in answer.results
            }
        )
        return list(described.values())

    async def _alter(self, name: str, fields: dict[str, Any], timeout_ms: int | None) -> None:
        call = Call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, _VERSIONS, fields)
        answer = await self._ask(f"alter user {name!r}", call, timeout_ms)
        settle(
            {
                result.user: _find_error(f"alter user {result.user!r}", result)
                for result in answer.results
            }
        )

    async def _ask(self, what: str, call: Call, timeout_ms: int | None) -> Any:
        deadline = self._router.deadline(timeout_ms)
        return await self._router.persist(
            what, deadline, lambda: self._router.ask_any(call, deadline)
        )


def _read(mechanisms: Sequence[str]) -> list[ScramMechanism]:
    names = [mechanism.upper() for mechanism in mechanisms]
    unknown = [name for name in names if name not in SCRAM_MECHANISMS]
    if unknown or not names:
        raise ValueError(
            f"{', '.join(unknown)[:100] or 'nothing'} is no mechanism of SCRAM; there are "
            f"{' and '.join(SCRAM_MECHANISMS)}"
        )
    return [ScramMechanism(name) for name in dict.fromkeys(names)]


def _salt(name: str, password: str, mechanism: ScramMechanism, iterations: int) -> dict[str, Any]:
    salt = token_bytes(_SALT_BYTES)
    try:
        salted = salted_password(mechanism, password, salt=salt, iterations=iterations)
    except ScramError as error:
        raise ValueError(str(error)) from None
    return {
        "name": name,
        "mechanism": mechanism.code,
        "iterations": iterations,
        "salt": salt,
        "salted_password": salted,
    }


def _user(result: Any) -> ScramUser:
    iterations = {
        _BY_CODE.get(info.mechanism, str(info.mechanism)): info.iterations
        for info in result.credential_infos
    }
    return ScramUser(name=result.user, iterations=iterations)


def _find_error(what: str, result: Any) -> RefusedByBroker | None:
    code = read_error(result.error_code)
    return RefusedByBroker(what, code, result.error_message) if code else None
