"""The TLS settings of one listener: its own, else the broker's. Values only, files are not read."""

from dataclasses import dataclass, field
from typing import Self

from penstock.config.effective_config import EffectiveConfig
from penstock.config.listener_config import ListenerConfig


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """A keystore or a truststore."""

    kind: str  # "keystore" or "truststore", as in the names of its settings
    type: str  # "JKS", "PKCS12" or "PEM", as configured
    location: str | None
    password: str | None = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConfig:
    listener: str
    keystore: StoreConfig
    keystore_key: str | None = field(repr=False)  # inline PEM
    keystore_certificate_chain: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    truststore: StoreConfig
    truststore_certificates: str | None
    client_auth: str  # "none", "requested" or "required"
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    mapping_rules: str
    allow_dn_changes: bool
    allow_san_changes: bool

    @classmethod
    def from_broker(cls, config: EffectiveConfig, listener: str) -> Self:
        own = ListenerConfig(config, listener)
        is_sasl = own.protocol == "SASL_SSL"
        return cls(
            listener=listener,
            keystore=StoreConfig(
                "keystore",
                own.get_str("ssl.keystore.type").upper(),
                own.find_str("ssl.keystore.location"),
                own.find_str("ssl.keystore.password"),
            ),
            keystore_key=own.find_str("ssl.keystore.key"),
            keystore_certificate_chain=own.find_str("ssl.keystore.certificate.chain"),
            key_password=own.find_str("ssl.key.password"),
            truststore=StoreConfig(
                "truststore",
                own.get_str("ssl.truststore.type").upper(),
                own.find_str("ssl.truststore.location"),
                own.find_str("ssl.truststore.password"),
            ),
            truststore_certificates=own.find_str("ssl.truststore.certificates"),
            # Behind SASL the setting counts with the listener's prefix only (KIP-684).
            client_auth=own.get_own_str("ssl.client.auth", "none")
            if is_sasl
            else own.get_str("ssl.client.auth"),
            enabled_protocols=own.get_list("ssl.enabled.protocols"),
            cipher_suites=own.get_list("ssl.cipher.suites"),
            mapping_rules=own.get_str("ssl.principal.mapping.rules"),
            allow_dn_changes=own.get_bool("ssl.allow.dn.changes"),
            allow_san_changes=own.get_bool("ssl.allow.san.changes"),
        )
