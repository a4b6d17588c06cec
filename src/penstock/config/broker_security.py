"""Broker settings of TLS, SASL and authorisation, tokens and stored passwords. What names a file,
a class or a login is read-only here, though Kafka lets clients change some of it."""

from functools import partial

from penstock.config.check import at_least, one_of
from penstock.config.declare import broker, named
from penstock.config.setting import NOT_YET, Setting, SettingKind, UpdateMode, no_effect

NO_JAVA = no_effect("Java classes cannot be loaded")
OPENSSL = no_effect("TLS is OpenSSL's, not Java's")

_later = partial(broker, effect=NOT_YET)
_per_broker = partial(broker, effect=NOT_YET, update=UpdateMode.PER_BROKER)
_java = partial(broker, effect=OPENSSL, update=UpdateMode.PER_BROKER)
_STRING, _PASSWORD, _LIST = SettingKind.STRING, SettingKind.PASSWORD, SettingKind.LIST

_ACCESS: tuple[Setting, ...] = (
    _later(
        "authorizer.class.name",
        _STRING,
        "",
        "Which authorizer decides who may do what; empty allows everything.",
    ),
    _later("super.users", _STRING, "", "Principals who may do everything, as User:a;User:b."),
    _later(
        "allow.everyone.if.no.acl.found",
        SettingKind.BOOLEAN,
        False,
        "Whether what has no rule is open to all.",
    ),
    broker(
        "principal.builder.class",
        SettingKind.CLASS,
        "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
        "Java class that names the principal of a connection.",
        effect=NO_JAVA,
    ),
    broker("security.providers", _STRING, None, "Java classes of algorithms.", effect=NO_JAVA),
    _later(
        "connections.max.reauth.ms",
        SettingKind.LONG,
        0,
        "Time after which a SASL client must authenticate again; 0 for never.",
    ),
)

_TLS: tuple[Setting, ...] = (
    _per_broker(
        "ssl.client.auth",
        _STRING,
        "none",
        "Whether clients must show a certificate.",
        one_of("required", "requested", "none"),
    ),
    _later(
        "ssl.principal.mapping.rules",
        _STRING,
        "DEFAULT",
        "Rules that turn a certificate's name into a principal.",
    ),
    _later(
        "ssl.allow.dn.changes",
        SettingKind.BOOLEAN,
        False,
        "Whether a replaced certificate may have another name.",
    ),
    _later(
        "ssl.allow.san.changes",
        SettingKind.BOOLEAN,
        False,
        "Whether a replaced certificate may have other host names.",
    ),
    _per_broker("ssl.protocol", _STRING, "TLSv1.3", "TLS version to begin with."),
    _per_broker(
        "ssl.enabled.protocols", _LIST, ("TLSv1.2", "TLSv1.3"), "TLS versions that are allowed."
    ),
    _per_broker("ssl.cipher.suites", _LIST, (), "Ciphers that are allowed; empty: the library's."),
    _per_broker(
        "ssl.endpoint.identification.algorithm",
        _STRING,
        "https",
        "How a server's name is checked; empty for no check.",
    ),
    _per_broker("ssl.keystore.type", _STRING, "JKS", "Format of the broker's key file."),
    _later("ssl.keystore.location", _STRING, None, "File of the broker's key."),
    _per_broker("ssl.keystore.password", _PASSWORD, None, "Password of that file."),
    _per_broker("ssl.key.password", _PASSWORD, None, "Password of the key itself."),
    _per_broker("ssl.keystore.key", _PASSWORD, None, "The key itself, as PEM."),
    _per_broker("ssl.keystore.certificate.chain", _PASSWORD, None, "Its certificates, as PEM."),
    _per_broker("ssl.truststore.type", _STRING, "JKS", "Format of the file of authorities."),
    _later("ssl.truststore.location", _STRING, None, "File of trusted authorities."),
    _per_broker("ssl.truststore.password", _PASSWORD, None, "Password of that file."),
    _per_broker("ssl.truststore.certificates", _PASSWORD, None, "Trusted authorities, as PEM."),
    _java("ssl.provider", _STRING, None, "Java provider of TLS."),
    _java("ssl.keymanager.algorithm", _STRING, "SunX509", "Java's key manager."),
    _java("ssl.trustmanager.algorithm", _STRING, "PKIX", "Java's trust manager."),
    _java("ssl.secure.random.implementation", _STRING, None, "Java's random numbers."),
    broker(
        "ssl.engine.factory.class",
        SettingKind.CLASS,
        None,
        "Java class of TLS engines.",
        effect=OPENSSL,
    ),
)

_SASL: tuple[Setting, ...] = (
    _per_broker(
        "sasl.enabled.mechanisms", _LIST, ("GSSAPI",), "Mechanisms that clients may choose from."
    ),
    _per_broker(
        "sasl.mechanism.inter.broker.protocol",
        _STRING,
        "GSSAPI",
        "Mechanism the brokers use among themselves.",
    ),
    _later("sasl.jaas.config", _PASSWORD, None, "Login of a mechanism, in the syntax of JAAS."),
    _later(
        "sasl.server.max.receive.size",
        SettingKind.INT,
        524_288,
        "Largest message before a client is authenticated.",
    ),
    broker(
        "sasl.server.callback.handler.class",
        SettingKind.CLASS,
        None,
        "Java class that checks logins.",
        effect=NO_JAVA,
    ),
    broker(
        "sasl.client.callback.handler.class",
        SettingKind.CLASS,
        None,
        "Java class for logins at other brokers.",
        effect=NO_JAVA,
    ),
    broker("sasl.login.class", SettingKind.CLASS, None, "Java class of a login.", effect=NO_JAVA),
    broker(
        "sasl.login.callback.handler.class",
        SettingKind.CLASS,
        None,
        "Java class that gives a login its data.",
        effect=NO_JAVA,
    ),
)

_TOKENS: tuple[Setting, ...] = (
    _later(
        "delegation.token.secret.key",
        _PASSWORD,
        None,
        "Secret that signs delegation tokens, the same on all brokers.",
        fallbacks=named("delegation.token.master.key"),
    ),
    _later(
        "delegation.token.master.key",
        _PASSWORD,
        None,
        "Deprecated by Kafka: old name of delegation.token.secret.key.",
    ),
    _later(
        "delegation.token.max.lifetime.ms",
        SettingKind.LONG,
        604_800_000,
        "Longest life of a token.",
        at_least(1),
    ),
    _later(
        "delegation.token.expiry.time.ms",
        SettingKind.LONG,
        86_400_000,
        "Time after which a token must be renewed.",
        at_least(1),
    ),
    _later(
        "delegation.token.expiry.check.interval.ms",
        SettingKind.LONG,
        3_600_000,
        "Time between two looks for expired tokens.",
        at_least(1),
    ),
)

_STORED_PASSWORDS: tuple[Setting, ...] = (
    _later(
        "password.encoder.secret",
        _PASSWORD,
        None,
        "Secret that encrypts passwords set while the broker runs.",
    ),
    _later("password.encoder.old.secret", _PASSWORD, None, "The secret before that one."),
    _later("password.encoder.keyfactory.algorithm", _STRING, None, "How the key is derived."),
    _later(
        "password.encoder.cipher.algorithm",
        _STRING,
        "AES/CBC/PKCS5Padding",
        "Cipher for those passwords.",
    ),
    _later("password.encoder.key.length", SettingKind.INT, 128, "Bits of the key.", at_least(8)),
    _later(
        "password.encoder.iterations",
        SettingKind.INT,
        4096,
        "Rounds of the key's derivation.",
        at_least(1024),
    ),
)

SETTINGS: tuple[Setting, ...] = (*_ACCESS, *_TLS, *_SASL, *_TOKENS, *_STORED_PASSWORDS)
