"""The TLS of a broker's listeners: loaded before they are bound, and reloaded when files change.

Files are polled and compared by content: mounts of containers replace them without an event, and a
key and its certificate at two moments. Invariant: a listener with TLS has a context that works, or
the broker does not start.
"""

import asyncio
import time
from collections.abc import Mapping

from penstock.config.effective_config import EffectiveConfig
from penstock.config.listeners import get_protocol_map
from penstock.logs.event_logger import EventLogger
from penstock.security.key_files import TlsConfigError
from penstock.security.server_tls import LoadedTls, ServerTls
from penstock.security.tls_config import TlsConfig
from penstock.server.addresses import listeners_of
from penstock.server.errors import StartRefused

TLS_PROTOCOLS = ("SSL", "SASL_SSL")
_DAY_S = 86_400
_WARN_S = 30 * _DAY_S  # before a certificate expires
_RECHECK_S = 3_600  # of the time that is left; the files are read more often


def load_listener_tls(config: EffectiveConfig) -> Mapping[str, ServerTls]:
    """By listener; StartRefused unless each listener with TLS has all that it needs."""
    protocols = get_protocol_map(config.get_str("listener.security.protocol.map"))
    try:
        return {
            listener.name: ServerTls(TlsConfig.from_broker(config, listener.name))
            for listener in listeners_of(config)
            if protocols[listener.name] in TLS_PROTOCOLS
        }
    except TlsConfigError as error:
        raise StartRefused(str(error)) from None


class CertificateReloader:
    """`run` is a task of the broker, which ends with it."""

    def __init__(
        self, tls: Mapping[str, ServerTls], *, interval_ms: int, logger: EventLogger
    ) -> None:
        self._tls = tls
        self._interval_ms = interval_ms
        self._logger = logger
        self._refused: dict[str, str] = {}  # by listener, what the log has said already
        self._rechecked_s = float("-inf")

    async def run(self) -> None:
        while True:
            self._warn_of_expiry(time.time())
            await asyncio.sleep(self._interval_ms / 1000)
            for tls in self._tls.values():
                await self.reload(tls)

    async def reload(self, tls: ServerTls) -> None:
        """Read the files in a thread: a mount that hangs stops no request."""
        try:
            loaded = await asyncio.to_thread(tls.load)
        except TlsConfigError as error:
            self._refuse(tls, str(error))
            return
        if tls.is_current(loaded):
            self._refused.pop(tls.listener, None)  # the old files are back
            return
        objection = tls.find_objection(loaded, time.time())
        if objection is not None:
            self._refuse(tls, f"listener {tls.listener}: {objection}")
            return
        tls.replace(loaded)
        self._refused.pop(tls.listener, None)
        self._report(tls, loaded)

    def _refuse(self, tls: ServerTls, reason: str) -> None:
        """Once, while the reason stays the same."""
        if self._refused.get(tls.listener) == reason:
            return
        self._refused[tls.listener] = reason
        tls.failed_reloads += 1
        self._logger.warning(
            "certificate_not_reloaded",
            f"{reason}; the old certificate stays in use, and the files are read again every "
            f"{self._interval_ms} ms",
            listener=tls.listener,
        )

    def _report(self, tls: ServerTls, loaded: LoadedTls) -> None:
        self._logger.info(
            "certificate_reloaded",
            f"listener {tls.listener}: new connections use the new certificate, which expires "
            f"{_format_time(loaded.certificate.not_after_s)}",
            listener=tls.listener,
        )
        self._rechecked_s = float("-inf")

    def _warn_of_expiry(self, now_s: float) -> None:
        if now_s - self._rechecked_s < _RECHECK_S:
            return
        self._rechecked_s = now_s
        for tls in self._tls.values():
            expires_s = tls.certificate.not_after_s
            if expires_s - now_s >= _WARN_S:
                continue
            state = "has expired" if expires_s <= now_s else "expires soon"
            self._logger.warning(
                "certificate_expires",
                f"listener {tls.listener}: its certificate {state} ({_format_time(expires_s)}); "
                "replace its files, and it is reloaded without a restart",
                listener=tls.listener,
            )


def _format_time(unix_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(unix_s))
