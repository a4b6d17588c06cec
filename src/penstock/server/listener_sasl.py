"""The SASL of a broker's listeners, made before they are bound.

Invariant: a listener with SASL has mechanisms that work, or the broker does not start.
"""

from collections.abc import Mapping

from penstock.config.effective_config import EffectiveConfig
from penstock.config.security_checks import secured_listeners
from penstock.security.sasl.config import SaslConfigError, make_sasl_listener
from penstock.security.sasl.login import SaslListener
from penstock.security.sasl.scram_users import ScramUsers
from penstock.server.errors import StartRefused
from penstock.server.jwks import TokenKeys


def make_listener_sasl(
    config: EffectiveConfig, users: ScramUsers, keys: TokenKeys
) -> Mapping[str, SaslListener]:
    """By listener; StartRefused says what a listener lacks."""
    try:
        return {
            name: make_sasl_listener(config, name, users, keys.begin_bearer)
            for name, protocol in secured_listeners(config).items()
            if protocol.startswith("SASL")
        }
    except SaslConfigError as error:
        raise StartRefused(str(error)) from None
