"""Builds the network server and binds the broker's listeners. It does not accept yet."""

from collections.abc import Mapping
from dataclasses import replace

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.sasl_gate import SaslGate
from penstock.config.effective_config import EffectiveConfig
from penstock.logs.event_logger import EventLogger
from penstock.network.handshake import ListenerTls
from penstock.network.limits import NetworkLimits
from penstock.network.send_queue import SendPath
from penstock.network.server import Server
from penstock.purgatory.loop_timers import LoopTimers
from penstock.security.audit.trail import AuditTrail
from penstock.security.quotas.client_quotas import ClientQuotas
from penstock.security.sasl.login import SaslListener
from penstock.server.addresses import Addresses, bound_addresses, listeners_of
from penstock.server.errors import StartRefused


def build_server(
    dispatcher: Dispatcher,
    config: EffectiveConfig,
    *,
    timers: LoopTimers,
    max_connections: int,  # that the process's file descriptors allow
    logger: EventLogger,
    quotas: ClientQuotas,
    audit: AuditTrail,
) -> Server:
    limits = NetworkLimits.from_broker(config)
    return Server(
        on_request=dispatcher.on_request,
        on_sasl_request=SaslGate(dispatcher.on_request, timers).on_request,
        check_frame=dispatcher.check_frame,
        timers=timers,
        limits=replace(limits, max_connections=min(limits.max_connections, max_connections)),
        send_path=SendPath(config.get_str("send.method").lower()),
        logger=logger,
        quotas=quotas,
        audit=audit,
    )


def bind_listeners(
    server: Server,
    config: EffectiveConfig,
    tls: Mapping[str, ListenerTls],
    sasl: Mapping[str, SaslListener],
) -> Addresses:
    bound = []
    for listener in listeners_of(config):
        try:
            host, port = server.bind(
                listener.name,
                listener.host,
                listener.port,
                tls.get(listener.name),
                sasl.get(listener.name),
            )
        except OSError as error:
            address = f"{listener.host or '*'}:{listener.port}"
            raise StartRefused(
                f"listener {listener.name} cannot listen on {address} ({error.strerror}); "
                f"choose another address with --listen or listeners, or stop the process that "
                f"uses it"
            ) from error
        bound.append(listener._replace(host=host, port=port))
    return bound_addresses(config, bound)
