"""The TLS part of a client's settings."""

from collections.abc import Iterable

from penstock.client.errors import InvalidClientConfig
from penstock.client.security.config import DEFAULT_TLS_VERSIONS, ClientTls, KeyStoreSource
from penstock.client.security.taken_settings import TakenSettings


def read_tls(names: TakenSettings) -> ClientTls:
    trusted = _read_trusted(names)
    certificate, key = _read_identity(names)
    key_password = names.take_secret("ssl.key.password")
    if key_password is not None and certificate is None:
        raise InvalidClientConfig(
            "ssl.key.password: there is no key; set ssl.key.location and "
            "ssl.certificate.location, or ssl.keystore.location"
        )
    return ClientTls(
        trusted=trusted,
        certificate=certificate,
        key=key,
        key_password=key_password,
        revoked_location=names.take_text("ssl.crl.location"),
        verifies_brokers=names.take_bool("enable.ssl.certificate.verification", True),
        checks_hosts=_read_host_check(names),
        versions=_read_versions(names),
        ciphers=names.take_text("ssl.cipher.suites"),
    )


def _read_host_check(names: TakenSettings) -> bool:
    algorithm = names.take("ssl.endpoint.identification.algorithm")
    if algorithm is None or algorithm.lower() == "https":
        return True
    if algorithm.lower() in ("", "none"):
        return False
    raise InvalidClientConfig(
        f"ssl.endpoint.identification.algorithm={algorithm[:40]}: write https, or none to accept "
        "any broker whose certificate the authorities signed"
    )


def _read_versions(names: TakenSettings) -> tuple[str, ...]:
    names.take("ssl.protocol")  # Java's context, whose versions are the next setting's
    text = names.take_text("ssl.enabled.protocols")
    if text is None:
        return DEFAULT_TLS_VERSIONS
    versions = tuple(part.strip() for part in text.split(","))
    if not set(versions) <= set(DEFAULT_TLS_VERSIONS):
        raise InvalidClientConfig(
            f"ssl.enabled.protocols={text[:80]}: there are {' and '.join(DEFAULT_TLS_VERSIONS)}; "
            "older ones are not secure"
        )
    return versions


def _read_trusted(names: TakenSettings) -> KeyStoreSource | None:
    password = names.take_secret("ssl.truststore.password")
    _take_type(names, "ssl.truststore.type")
    files = ("ssl.ca.location", "ssl.truststore.location")
    source = _locate(names, files, ("ssl.ca.pem", "ssl.truststore.certificates"), password)
    if password is not None and source is None:
        raise InvalidClientConfig("ssl.truststore.password: set ssl.truststore.location, too")
    is_system = source is not None and source.location == "probe"
    return None if is_system else source


def _read_identity(names: TakenSettings) -> tuple[KeyStoreSource | None, KeyStoreSource | None]:
    """Where the certificate is, and the key if it is elsewhere."""
    password = names.take_secret("ssl.keystore.password")
    _take_type(names, "ssl.keystore.type")
    store = _locate(names, ("ssl.keystore.location",), (), password)
    texts = ("ssl.certificate.pem", "ssl.keystore.certificate.chain")
    certificate = _locate(names, ("ssl.certificate.location",), texts)
    key = _locate(names, ("ssl.key.location",), ("ssl.key.pem", "ssl.keystore.key"))
    if store is None and password is not None:
        raise InvalidClientConfig("ssl.keystore.password: set ssl.keystore.location, too")
    for one, other in ((certificate, key), (key, certificate)):
        if one is None:
            continue
        if store is not None:
            raise InvalidClientConfig(
                f"{store.setting} holds the key and its certificate; remove it, or {one.setting}"
            )
        if other is None:
            missing = "ssl.certificate.location" if one is key else "ssl.key.location"
            raise InvalidClientConfig(f"{one.setting} needs {missing}")
    return (certificate, key) if store is None else (store, None)


def _take_type(names: TakenSettings, name: str) -> None:
    """Java's type of a store: the content says it, too, and is believed."""
    store_type = names.take_text(name)
    if store_type is not None and store_type.upper() not in ("PEM", "PKCS12", "JKS"):
        raise InvalidClientConfig(f"{name}={store_type[:40]}: write PEM or PKCS12")


def _locate(
    names: TakenSettings,
    files: Iterable[str],
    texts: Iterable[str],
    password: str | None = None,
) -> KeyStoreSource | None:
    """The one of these settings that is set."""
    sources = [
        KeyStoreSource(setting=name, location=value, password=password)
        for name in files
        if (value := names.take_text(name)) is not None
    ]
    sources += [
        KeyStoreSource(setting=name, pem=value)
        for name in texts
        if (value := names.take_text(name)) is not None
    ]
    if len(sources) > 1:
        given = " and ".join(source.setting for source in sources)
        raise InvalidClientConfig(f"{given} exclude each other; set only one")
    return sources[0] if sources else None
