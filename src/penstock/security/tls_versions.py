"""ssl.enabled.protocols and ssl.cipher.suites, from Java's names to OpenSSL's.

Raises ValueError for what OpenSSL would not do exactly as configured.
"""

import ssl
from collections.abc import Mapping, Sequence
from types import MappingProxyType

_VERSIONS: Mapping[str, ssl.TLSVersion] = MappingProxyType(
    {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
)
# Those of TLS 1.2 with forward secrecy and an AEAD; older ones are not offered.
_SUITES: Mapping[str, str] = MappingProxyType(
    {
        f"TLS_ECDHE_{key}_WITH_{java}": f"ECDHE-{key}-{name}"
        for key in ("RSA", "ECDSA")
        for java, name in (
            ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
            ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
            ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
        )
    }
)
_SUITES_OF_1_3 = frozenset(
    ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
)


def set_versions(context: ssl.SSLContext, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in _VERSIONS]
    if unknown or not names:
        raise ValueError(
            f"ssl.enabled.protocols {', '.join(unknown) or 'is empty'}: only "
            f"{' and '.join(_VERSIONS)} are served; older versions are not secure"
        )
    versions = [_VERSIONS[name] for name in names]
    context.minimum_version, context.maximum_version = min(versions), max(versions)


def set_ciphers(context: ssl.SSLContext, names: Sequence[str], versions: Sequence[str]) -> None:
    """Without names, OpenSSL's secure ones."""
    wanted = set(filter(None, names))
    if not wanted:
        context.set_ciphers(":".join(_SUITES.values()))
        return
    unknown = sorted(wanted - _SUITES.keys() - _SUITES_OF_1_3)
    if unknown:
        raise ValueError(
            f"ssl.cipher.suites {', '.join(unknown)}: not served; choose from "
            f"{', '.join((*_SUITES, *sorted(_SUITES_OF_1_3)))}"
        )
    if "TLSv1.3" in versions and not wanted >= _SUITES_OF_1_3:
        raise ValueError(
            "ssl.cipher.suites cannot choose among those of TLS 1.3, which are always all offered: "
            f"name all of {', '.join(sorted(_SUITES_OF_1_3))}, or set "
            "ssl.enabled.protocols=TLSv1.2"
        )
    chosen = [_SUITES[name] for name in names if name in _SUITES]
    if not chosen and "TLSv1.2" in versions:
        raise ValueError(
            "ssl.cipher.suites has no suite for TLS 1.2; set ssl.enabled.protocols=TLSv1.3"
        )
    if chosen:
        context.set_ciphers(":".join(chosen))
