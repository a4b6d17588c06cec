"""The keys of an issuer of tokens, for OAUTHBEARER: fetched before the listener opens, then again.

From https or from a file, as the broker's own settings say: no client chooses where, and no
redirection either. Invariant: keys that cannot be fetched again stay in use, and the log says why.
"""

import asyncio
import json
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from penstock.logs.event_logger import EventLogger
from penstock.security.sasl.bearer import BearerExchange
from penstock.security.sasl.bearer_tokens import BadKeySet, TokenVerifier, read_key_set
from penstock.security.sasl.config import BearerConfig, SaslConfigError
from penstock.security.sasl.mechanism import MechanismExchange

_TIMEOUT_S = 10.0
_MAX_BYTES = 1024 * 1024
_SCHEMES = ("https", "file")
_MIN_PAUSE_S = 10.0  # between two fetches because of unknown keys


class JwksUnavailable(Exception):
    """The message says what is wrong with it."""


class _NoRedirection(urllib.request.HTTPRedirectHandler):
    """From https it could lead to http."""

    def redirect_request(self, *arguments: object, **options: object) -> None:
        return None


def fetch_keys(url: str) -> list[Any]:
    """Blocks; JwksUnavailable."""
    if urlsplit(url).scheme not in _SCHEMES:
        raise JwksUnavailable(f"{url[:200]}: https or file is needed, so that nobody changes it")
    try:
        opener = urllib.request.build_opener(_NoRedirection)
        with opener.open(url, timeout=_TIMEOUT_S) as response:
            content = response.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise JwksUnavailable(f"{url}: more than {_MAX_BYTES} bytes")
        return read_key_set(json.loads(content))
    except BadKeySet as error:
        raise JwksUnavailable(f"{url}: {error}") from None
    except (OSError, ValueError, HTTPException, RecursionError) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
        raise JwksUnavailable(f"{url}: {reason or type(error).__name__}") from None


class JwksRefresher:
    """Of one listener. `run` is a task."""

    def __init__(self, config: BearerConfig) -> None:
        """Fetches the keys, which may take some seconds; JwksUnavailable."""
        self._url = config.jwks_url
        self._refresh_s = config.refresh_ms / 1000
        self._wanted = asyncio.Event()
        self._verifier = TokenVerifier(config.rules, fetch_keys(config.jwks_url))

    def begin(self) -> MechanismExchange:
        return BearerExchange(self._verifier, self._wanted.set)

    async def run(self, logger: EventLogger) -> None:
        while True:
            fetched_s = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._refresh_s):
                    await self._wanted.wait()
            # A client names unknown keys as often as it likes.
            await asyncio.sleep(max(0.0, fetched_s + _MIN_PAUSE_S - time.monotonic()))
            self._wanted.clear()
            await self._fetch(logger)

    async def _fetch(self, logger: EventLogger) -> None:
        try:
            keys = await asyncio.to_thread(fetch_keys, self._url)
        except JwksUnavailable as error:
            logger.warning(
                "token_keys_not_fetched", f"{error}; the keys that are there stay in use"
            )
            return
        self._verifier.replace_keys(keys)


class TokenKeys:
    """The keys of all listeners with OAUTHBEARER."""

    def __init__(self) -> None:
        self._refreshers: list[JwksRefresher] = []
        self._tasks: list[asyncio.Task[None]] = []

    def begin_bearer(self, config: BearerConfig) -> Callable[[], MechanismExchange]:
        """Raises SaslConfigError."""
        try:
            refresher = JwksRefresher(config)
        except JwksUnavailable as error:
            raise SaslConfigError(
                f"listener {config.listener}: sasl.oauthbearer.jwks.endpoint.url: {error}"
            ) from None
        self._refreshers.append(refresher)
        return refresher.begin

    def follow(self, logger: EventLogger, tasks: asyncio.TaskGroup) -> None:
        """Until `close`."""
        for refresher in self._refreshers:
            self._tasks.append(tasks.create_task(refresher.run(logger), name="token-keys"))

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()
