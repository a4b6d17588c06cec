"""The metrics listener of a broker: bound before recovery, so that health is known throughout."""

from collections.abc import Callable

from penstock.config.effective_config import EffectiveConfig
from penstock.config.listeners import HostPort, find_host_port
from penstock.logs.event_logger import EventLogger
from penstock.metrics.endpoints import Endpoints, Health
from penstock.metrics.families import Dialect
from penstock.metrics.http_server import HttpServer
from penstock.metrics.scrape import Scraper
from penstock.server.errors import StartRefused


class MetricsListener:
    """`open`, then `serve` once the broker is built; `close`, or `abandon` without waiting."""

    def __init__(
        self, config: EffectiveConfig, health: Callable[[], Health], logger: EventLogger
    ) -> None:
        self._logger = logger
        self._endpoints = Endpoints(health, Dialect[config.get_str("metrics.names").upper()])
        self._server = HttpServer(self._endpoints.respond, logger=logger)

    async def open(self, address: HostPort) -> None:
        try:
            bound = HostPort(*await self._server.open(*address))
        except OSError as error:
            raise StartRefused(
                f"metrics cannot be served on {address} ({error.strerror or error}); choose "
                f"another address with --metrics or metrics.listener, or stop the process that "
                f"uses it"
            ) from error
        self._logger.info(
            "metrics_listening", f"metrics at http://{bound}/metrics, health at /live and /ready"
        )

    def serve(self, scraper: Scraper) -> None:
        self._endpoints.scraper = scraper

    async def close(self) -> None:
        await self._server.close()

    def abandon(self) -> None:
        self._server.abandon()


def find_metrics_address(config: EffectiveConfig) -> HostPort | None:
    """None: no metrics are served."""
    text = config.get_str("metrics.listener")
    return find_host_port(text) if text else None
