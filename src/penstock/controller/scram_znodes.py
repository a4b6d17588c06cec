"""SCRAM credentials in znodes: the paths and the values of Kafka 3.9.

A user's credentials lie beside the user's quotas, in one znode. Invariant: no error shows a value.
"""

import binascii
from base64 import b64decode, b64encode
from collections.abc import Mapping
from urllib.parse import unquote

from penstock.controller.znodes import ALL_BROKERS, CONFIG_CHANGES, USER_CONFIGS, quote_entity
from penstock.metadata_store.errors import DamagedZnode
from penstock.protocol.scram import (
    ScramCredential,
    ScramError,
    ScramMechanism,
    check_iterations,
)

LOGIN_SECRET = "/config/penstock_login_secret"  # noqa: S105 (a path)
# Parents first.
SCRAM_ZNODES = ("/config", USER_CONFIGS, CONFIG_CHANGES)

Credentials = dict[ScramMechanism, ScramCredential]


def user_path(user: str) -> str:
    return f"{USER_CONFIGS}/{quote_entity(user)}"


def find_user(path: str) -> str | None:
    """The user whose znode it is; None for another znode, and for that of all users."""
    parent, _, name = path.rpartition("/")
    return unquote(name) if parent == USER_CONFIGS and name != ALL_BROKERS else None


def encode_credential(credential: ScramCredential) -> str:
    salt, stored_key, server_key = (
        b64encode(value).decode()
        for value in (credential.salt, credential.stored_key, credential.server_key)
    )
    return (
        f"salt={salt},stored_key={stored_key},server_key={server_key},"
        f"iterations={credential.iterations}"
    )


def decode_credentials(path: str, configs: Mapping[str, str]) -> Credentials:
    """Those among a user's configs; DamagedZnode if one cannot be used."""
    return {
        mechanism: _decode(path, mechanism, configs[mechanism.value])
        for mechanism in ScramMechanism
        if mechanism.value in configs
    }


def _decode(path: str, mechanism: ScramMechanism, text: str) -> ScramCredential:
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        credential = ScramCredential(
            salt=b64decode(fields["salt"], validate=True),
            stored_key=b64decode(fields["stored_key"], validate=True),
            server_key=b64decode(fields["server_key"], validate=True),
            iterations=int(fields["iterations"]),
        )
        check_iterations(credential.iterations)
    except KeyError as missing:
        raise DamagedZnode(path, f"{mechanism.value} has no {missing.args[0]}") from None
    except ScramError as error:
        raise DamagedZnode(path, f"{mechanism.value}: {error}") from None
    except (binascii.Error, ValueError):
        raise DamagedZnode(path, f"{mechanism.value} has a value that is malformed") from None
    if {len(credential.stored_key), len(credential.server_key)} != {mechanism.key_bytes}:
        raise DamagedZnode(path, f"{mechanism.value} has a key of the wrong length")
    return credential
