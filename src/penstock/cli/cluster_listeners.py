"""The listeners of `penstock up --brokers N`: those of the config, or one PLAINTEXT listener.

Each broker has the ports after those of the broker before. Nothing is bound here. Invariant: what
the config asks to be secured is served so, or the command is refused.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from penstock.config.effective_config import EffectiveConfig, resolve_broker
from penstock.config.listeners import Listener, get_listeners
from penstock.config.raw_config import ConfigError, RawConfig
from penstock.config.security_checks import secured_listeners
from penstock.server.addresses import inter_broker_listener

_ADVERTISED = "advertised.listeners"
_SETTINGS = (
    "listeners",
    _ADVERTISED,
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "security.inter.broker.protocol",
)
_EVERY_ADDRESS = ("", "0.0.0.0", "::")  # noqa: S104 (compared, not bound)


class ClusterListeners(NamedTuple):
    of_brokers: Sequence[Sequence[Listener]]
    for_clients: str  # the name of the listener that clients use
    advertised: Sequence[str] = ()  # each broker's, if the config advertises addresses


def plan_listeners(given: RawConfig, brokers: int) -> ClusterListeners:
    """Those of the config, which has `listeners`. Raises ConfigError."""
    config = _resolve(given)
    listeners = get_listeners(config.get_list("listeners"))
    _refuse_shared_ports(listeners, brokers)
    advertised: list[str] = []
    if _ADVERTISED in given.values:
        of_first = get_listeners(config.get_list(_ADVERTISED))
        advertised = [",".join(map(str, own)) for own in spread(of_first, brokers)]
    return ClusterListeners(
        spread(listeners, brokers), _find_clients(config, listeners), advertised
    )


def refuse_replaced_security(given: RawConfig, listen: str) -> None:
    """`--listen` wins over `listeners`: security that is asked for there must not vanish in
    silence. Raises ConfigError."""
    listeners = given.values.get("listeners")
    if listeners is None:
        return
    secured = secured_listeners(_resolve(given))
    if secured:
        problem = (
            f"--listen {listen} is one PLAINTEXT listener in place of all, and listeners asks for "
            f"{', '.join(secured)} ({listeners.where}); leave --listen out, or remove that listener"
        )
        raise ConfigError([problem])


def spread(of_first: Sequence[Listener], brokers: int) -> list[tuple[Listener, ...]]:
    """For each broker, on consecutive ports; port 0 stays."""
    return [
        tuple(
            listener._replace(port=listener.port + index if listener.port else 0)
            for listener in of_first
        )
        for index in range(brokers)
    ]


def _resolve(given: RawConfig) -> EffectiveConfig:
    """The listeners' settings alone; the others may lack what each broker adds."""
    named = {name: raw for name, raw in given.values.items() if name in _SETTINGS}
    return resolve_broker(given._replace(values=named))


def _find_clients(config: EffectiveConfig, listeners: Sequence[Listener]) -> str:
    """The first that is not the brokers' own."""
    names = [listener.name for listener in listeners]
    others = [name for name in names if name != inter_broker_listener(config)]
    return (others or names)[0]


def _refuse_shared_ports(listeners: Sequence[Listener], brokers: int) -> None:
    for one, other in combinations(listeners, 2):
        is_apart = abs(one.port - other.port) >= brokers or 0 in (one.port, other.port)
        hosts = {one.host, other.host}
        if not is_apart and (len(hosts) == 1 or hosts & set(_EVERY_ADDRESS)):
            problem = (
                f"listeners: with {brokers} brokers {one.name} has the ports from {one.port} to "
                f"{one.port + brokers - 1}, and {other.name} those from {other.port} to "
                f"{other.port + brokers - 1}; choose first ports that are {brokers} apart"
            )
            raise ConfigError([problem])
