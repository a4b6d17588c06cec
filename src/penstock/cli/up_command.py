"""`penstock up`: runs a broker in the foreground until Ctrl-C or SIGTERM."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.config.properties import read_properties
from penstock.config.raw_config import EMPTY_RAW_CONFIG, ConfigError, RawConfig

if TYPE_CHECKING:
    from penstock.cli.cluster_listeners import ClusterListeners
    from penstock.server.lifecycle import BrokerLifecycle
    from penstock.server.local_cluster import LocalCluster

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

DEFAULT_DATA = Path("penstock-data")
DEFAULT_LISTEN = "127.0.0.1:9092"


@app.command()
def up(
    data: Annotated[
        Path | None,
        typer.Option(help=f"Where the logs are kept; default ./{DEFAULT_DATA}, or log.dirs."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help=f"Where clients connect; default {DEFAULT_LISTEN}, or listeners. "
            "0.0.0.0 listens on every address.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A Kafka server.properties file."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Override one setting by Kafka's name. Repeatable."
        ),
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option(help="broker.id; default: the one in meta.properties, or 1.")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            metavar="CONNECT",
            help="ZooKeeper connect string of the cluster: HOST:PORT[,HOST:PORT...][/PATH].",
        ),
    ] = None,
    brokers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Run a cluster of N broker processes on this machine, on consecutive ports from "
            "that of --listen, or of each of the listeners; starts a ZooKeeper unless --zookeeper "
            "names one.",
        ),
    ] = None,
    zookeepers: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=5,
            metavar="M",
            help="With --brokers: size of the ZooKeeper ensemble; default 1.",
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Serve /metrics for Prometheus, /live and /ready there, or metrics.listener; "
            "with --brokers on consecutive ports.",
        ),
    ] = None,
    otlp: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Push metrics there over HTTP in OpenTelemetry's protocol, or "
            "metrics.otlp.endpoint; needs the extra otlp.",
        ),
    ] = None,
    admin_user: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="SCRAM user that is created before the first listener opens, unless it exists, or "
            "penstock.admin.user; needs a listener with SCRAM. The password is in "
            "--admin-password-file or in PENSTOCK_ADMIN_PASSWORD.",
        ),
    ] = None,
    admin_password_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Its first line is the password of --admin-user."),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="text|json",
            help="Format of the log on stderr, or logging.format; default text. "
            "With --brokers each broker has a log file.",
        ),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            help="TRACE, DEBUG, INFO, WARN, ERROR or FATAL, or logging.level; default INFO.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse settings that are accepted and have no effect here."),
    ] = False,
) -> None:
    """Start a broker in the foreground; Ctrl-C or SIGTERM stops it cleanly.

    \b
    penstock up
    penstock up --listen 0.0.0.0:9092 --data /var/lib/penstock
    penstock up --config server.properties --set auto.create.topics.enable=false
    penstock up --brokers 3
    penstock up --metrics 127.0.0.1:9404 --log-format json
    penstock up --broker-id 2 --zookeeper zk1:2181,zk2:2181,zk3:2181 --listen 10.0.0.2:9092

    When it is serving, prints one line: ready HOST:PORT[,HOST:PORT...]
    """
    _refuse_contradictions(broker_id, zookeeper, brokers, zookeepers)
    options = _optional_settings(metrics, otlp, log_format, log_level)
    options |= _admin_settings(admin_user, admin_password_file)
    if brokers is not None:
        raise typer.Exit(
            _run_cluster(
                data,
                listen,
                config,
                settings or [],
                zookeeper,
                brokers,
                zookeepers or 1,
                options,
                is_strict=strict,
            )
        )
    from penstock.server.lean_start import start_broker

    raw_config = _gather(data, listen, config, settings or [], broker_id, zookeeper, options)
    if strict:
        _refuse_without_effect(raw_config)
    raise typer.Exit(start_broker(raw_config, on_ready=_say_ready))


def _optional_settings(
    metrics: str | None, otlp: str | None, log_format: str | None, log_level: str | None
) -> dict[str, str]:
    """The options that stand for one setting each, alike for one broker and for several."""
    options: dict[str, str] = {}
    if metrics is not None:
        split_address(metrics, "--metrics")
        options["metrics.listener"] = metrics
    if otlp is not None:
        options["metrics.otlp.endpoint"] = otlp
    if log_format is not None:
        options["logging.format"] = log_format
    if log_level is not None:
        options["logging.level"] = log_level.upper()
    return options


def _admin_settings(user: str | None, password_file: Path | None) -> dict[str, str]:
    options: dict[str, str] = {}
    if user is not None:
        options["penstock.admin.user"] = user
    if password_file is not None:
        if user is None:
            raise typer.BadParameter("--admin-password-file needs --admin-user")
        options["penstock.admin.password.file"] = str(password_file)
    return options


def _refuse_contradictions(
    broker_id: int | None, zookeeper: str | None, brokers: int | None, zookeepers: int | None
) -> None:
    if zookeepers is not None and (brokers is None or zookeeper is not None):
        raise typer.BadParameter(
            "--zookeepers sizes the ensemble that --brokers starts; it needs --brokers, and no "
            "--zookeeper, which names servers that run already"
        )
    if brokers is not None and broker_id is not None:
        raise typer.BadParameter("--broker-id is for one broker; with --brokers they get 1, 2, ...")


def _run_cluster(
    data: Path | None,
    listen: str | None,
    config: Path | None,
    settings: list[str],
    zookeeper: str | None,
    brokers: int,
    zookeepers: int,
    options: dict[str, str],
    *,
    is_strict: bool,
) -> int:
    from penstock.cli.cluster_foreground import run_cluster
    from penstock.server.local_cluster import FIRST_ID, LocalCluster

    given = EMPTY_RAW_CONFIG if config is None else _read(config)
    given = given.overlaid_by(RawConfig.from_mapping(options, where="command line"))
    given = _overlay(given, settings)
    if zookeeper is None:
        _refuse_own_zookeeper(given)
    planned = _plan_listeners(given, listen, brokers)
    if is_strict:
        _refuse_without_effect(given)
    cluster = LocalCluster(
        data or DEFAULT_DATA,
        listeners=planned.of_brokers,
        for_clients=planned.for_clients,
        zookeeper=zookeeper,
        zookeepers=zookeepers,
        config={name: raw.text for name, raw in given.values.items()},
        broker_configs={
            broker_id: {"advertised.listeners": text}
            for broker_id, text in enumerate(planned.advertised, FIRST_ID)
        },
    )
    _refuse_invalid(cluster, given)
    for warning in given.warnings:
        _report(warning)
    return run_cluster(cluster, _report)


def _refuse_own_zookeeper(given: RawConfig) -> None:
    """The ZooKeeper that is started here is plaintext, without logins, on loopback alone."""
    for name in ("zookeeper.ssl.client.enable", "penstock.zookeeper.sasl.jaas.config"):
        if name in given.values and given.values[name].text.lower() != "false":
            raise typer.BadParameter(
                f"{name} needs a ZooKeeper that has it: name yours with --zookeeper. The one that "
                "--brokers starts listens on 127.0.0.1 alone, without TLS and logins"
            )


def _plan_listeners(given: RawConfig, listen: str | None, brokers: int) -> "ClusterListeners":
    from penstock.cli.cluster_listeners import (
        ClusterListeners,
        plan_listeners,
        spread,
    )
    from penstock.config.listeners import Listener

    host, port = split_address(listen or DEFAULT_LISTEN)
    if listen is not None:
        _refuse_replaced_security(given, listen)
    elif "listeners" in given.values:
        try:
            return plan_listeners(given, brokers)
        except ConfigError as error:
            raise typer.BadParameter(str(error)) from None
    of_brokers = spread([Listener("PLAINTEXT", host, port)], brokers)
    return ClusterListeners(of_brokers, "PLAINTEXT")


def _refuse_invalid(cluster: "LocalCluster", given: RawConfig) -> None:
    """Before ZooKeeper starts: a broker would refuse it after seconds, with its log quoted."""
    for broker_id in cluster.broker_ids:
        texts = {**cluster.config_of(broker_id), "zookeeper.connect": "127.0.0.1:2181"}
        kept = {(name, raw.text) for name, raw in given.values.items()}
        own = dict(texts.items() - kept)
        _refuse_unresolved(given.overlaid_by(RawConfig.from_mapping(own, where="--brokers")))


def _refuse_unresolved(raw_config: RawConfig) -> None:
    from penstock.config.effective_config import resolve_broker

    try:
        resolve_broker(raw_config)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _refuse_without_effect(raw_config: RawConfig) -> None:
    from penstock.config.effective_config import resolve_broker

    try:
        inert = resolve_broker(raw_config).describe_without_effect()
    except ConfigError:
        return  # refused by the broker, in full
    if inert is not None:
        raise typer.BadParameter(f"{inert}; remove them, or start without --strict")


def _gather(
    data: Path | None,
    listen: str | None,
    config: Path | None,
    settings: list[str],
    broker_id: int | None,
    zookeeper: str | None,
    more: dict[str, str],
) -> RawConfig:
    """Merge defaults, the file, options and --set, where later ones win."""
    raw_config = _defaults()
    if config is not None:
        raw_config = raw_config.overlaid_by(_read(config))
    options = dict(more)
    if data is not None:
        options["log.dirs"] = str(data)
    if listen is not None:
        split_address(listen)
        if config is not None:
            _refuse_replaced_security(raw_config, listen)
        options["listeners"] = f"PLAINTEXT://{listen}"
    if broker_id is not None:
        options["broker.id"] = str(broker_id)
    if zookeeper is not None:
        options["zookeeper.connect"] = zookeeper
    raw_config = raw_config.overlaid_by(RawConfig.from_mapping(options, where="command line"))
    return _overlay(raw_config, settings)


def _refuse_replaced_security(given: RawConfig, listen: str) -> None:
    from penstock.cli.cluster_listeners import refuse_replaced_security

    try:
        refuse_replaced_security(given, listen)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def _overlay(raw_config: RawConfig, settings: list[str]) -> RawConfig:
    single = dict(_split(text) for text in settings)
    return raw_config.overlaid_by(RawConfig.from_mapping(single, where="--set"))


def _defaults() -> RawConfig:
    from penstock.server.development_defaults import DEVELOPMENT_SETTINGS

    values = {
        **DEVELOPMENT_SETTINGS,
        "log.dirs": str(DEFAULT_DATA),
        "listeners": f"PLAINTEXT://{DEFAULT_LISTEN}",
    }
    return RawConfig.from_mapping(values, where="default of `penstock up`")


def _read(path: Path) -> RawConfig:
    try:
        return read_properties(path)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from None


def split_address(text: str, option: str = "--listen") -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not (colon and port.isdigit() and int(port) <= 65535):
        raise typer.BadParameter(f"{option} {text}: HOST:PORT expected, as in {DEFAULT_LISTEN}")
    return host, int(port)


def _split(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (equals and name.strip()):
        raise typer.BadParameter(f"--set {text}: KEY=VALUE expected")
    return name.strip(), value.strip()


def _say_ready(node: "BrokerLifecycle") -> None:
    print(f"ready {node.bootstrap_servers}", flush=True)


def _report(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
