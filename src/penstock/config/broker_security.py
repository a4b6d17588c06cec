"""Broker settings of security: TLS. A listener may have its own, as `listener.name.<name>.ssl.…`.

All are read-only: no client can change who is let in. Certificates are renewed by replacing their
files.
"""

from penstock.config.check import at_least, one_of
from penstock.config.declare import broker
from penstock.config.setting import Setting, SettingKind

_TLS: tuple[Setting, ...] = (
    broker(
        "ssl.client.auth",
        SettingKind.STRING,
        "none",
        "Whether clients must show a certificate.",
        one_of("required", "requested", "none"),
    ),
    broker(
        "ssl.principal.mapping.rules",
        SettingKind.STRING,
        "DEFAULT",
        "Rules that turn a certificate's name into a principal: RULE:pattern/replacement/[LU].",
    ),
    broker(
        "ssl.enabled.protocols",
        SettingKind.LIST,
        ("TLSv1.2", "TLSv1.3"),
        "TLS versions that are served.",
    ),
    broker(
        "ssl.cipher.suites",
        SettingKind.LIST,
        (),
        "Cipher suites that are served, by Java's names; empty: all with forward secrecy.",
    ),
)

_KEYS: tuple[Setting, ...] = (
    broker(
        "ssl.keystore.type",
        SettingKind.STRING,
        "JKS",
        "Format of ssl.keystore.location: PEM or PKCS12. A PKCS12 file is read as JKS, too.",
    ),
    broker(
        "ssl.keystore.location",
        SettingKind.STRING,
        None,
        "File with the broker's key and its certificates, its own first.",
    ),
    broker(
        "ssl.keystore.password", SettingKind.PASSWORD, None, "Password of that file, if PKCS12."
    ),
    broker("ssl.key.password", SettingKind.PASSWORD, None, "Password of an encrypted PEM key."),
    broker("ssl.keystore.key", SettingKind.PASSWORD, None, "The key itself, as PEM."),
    broker(
        "ssl.keystore.certificate.chain", SettingKind.PASSWORD, None, "Its certificates, as PEM."
    ),
    broker(
        "ssl.truststore.type",
        SettingKind.STRING,
        "JKS",
        "Format of ssl.truststore.location: PEM or PKCS12. A PKCS12 file is read as JKS, too.",
    ),
    broker(
        "ssl.truststore.location",
        SettingKind.STRING,
        None,
        "File of the authorities that sign clients' certificates.",
    ),
    broker(
        "ssl.truststore.password", SettingKind.PASSWORD, None, "Password of that file, if PKCS12."
    ),
    broker("ssl.truststore.certificates", SettingKind.PASSWORD, None, "The authorities, as PEM."),
    broker(
        "ssl.allow.dn.changes",
        SettingKind.BOOLEAN,
        False,
        "Whether a replaced certificate may have another name.",
    ),
    broker(
        "ssl.allow.san.changes",
        SettingKind.BOOLEAN,
        False,
        "Whether a replaced certificate may lack alternative names of the old one.",
    ),
    broker(
        "penstock.ssl.reload.interval.ms",
        SettingKind.INT,
        10_000,
        "Time between two looks at the files of keys and authorities.",
        at_least(100),
        own=True,
    ),
)

SETTINGS: tuple[Setting, ...] = (*_TLS, *_KEYS)
