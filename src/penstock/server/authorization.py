"""The broker's authorizer, with the rules that it decides by; loaded before any listener opens."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.config.effective_config import EffectiveConfig
from penstock.logs.event_logger import EventLogger
from penstock.logs.rate_limit import RateLimitedLogger
from penstock.purgatory.loop_timers import LoopTimers
from penstock.security.access_log import AccessLog
from penstock.security.audit.trail import AuditTrail
from penstock.security.authorizer import AllowAll, Authorizer
from penstock.server.metadata_store import BrokerMetadataStore

if TYPE_CHECKING:
    from penstock.controller.acl_store import AclStore
    from penstock.security.server_tls import ServerTls


class Authorization(NamedTuple):
    authorizer: Authorizer
    acls: "AclStore | None"  # None: no authorizer is configured, and everything is allowed
    access_log: AccessLog


async def open_authorization(
    config: EffectiveConfig,
    tls: "Mapping[str, ServerTls]",
    store: BrokerMetadataStore,
    timers: LoopTimers,
    logger: EventLogger,
    audit: AuditTrail,
) -> Authorization:
    """StartRefused if this broker itself would be refused by the others."""
    if not config["authorizer.class.name"]:
        return Authorization(AllowAll(), None, AccessLog())
    # Imported here because most brokers of tests have no authorizer.
    from penstock.controller.acl_store import AclStore
    from penstock.security.acl_authorizer import AclAuthorizer, AuthorizerConfig
    from penstock.server.own_principal import refuse_powerless_broker

    authorizer = AclAuthorizer(AuthorizerConfig.from_broker(config))
    acls = AclStore(store.session, authorizer.replace, logger)
    await store.ask_at_startup(lambda session: acls.load())
    logger.info("acls_loaded", f"{len(authorizer.index)} ACLs are in effect")
    refuse_powerless_broker(config, tls, authorizer)
    limited = RateLimitedLogger(logger, now_ms=timers.now_ms, add_timer=timers.add_after)
    return Authorization(authorizer, acls, AccessLog(logger, limited, authorizer.decide, audit))


def follow_acls(acls: "AclStore", tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
    """To be cancelled before the metadata store is closed."""
    return tasks.create_task(acls.follow(), name="acls")
