"""Kafka and Penstock with a PLAINTEXT and an SSL listener each, and the same certificate."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from tests.interop.kafka_jars import KafkaJars

from bench.broker.nodes import KAFKA_SETTINGS, Kafka
from penstock.config.properties import write_properties
from penstock.testing.certificates import CertificateFiles

_TICKS_S = os.sysconf("SC_CLK_TCK")


class Secured:
    """A broker for `bench.broker.nodes.Node`, whose second listener has TLS."""

    def __init__(self, certificate: CertificateFiles) -> None:
        self.tls = f"127.0.0.1:{_free_port()}"
        self._certificate = certificate

    def _settings(self, port: int) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{port},SSL://{self.tls}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate.pem_keystore),
        }


class SecuredKafka(Secured):
    def __init__(self, jars: KafkaJars, certificate: CertificateFiles) -> None:
        super().__init__(certificate)
        self._jars = jars

    def prepare(self, directory: Path, port: int) -> list[str]:
        settings = KAFKA_SETTINGS | self._settings(port)
        settings["listeners"] += f",CONTROLLER://127.0.0.1:{port + 1}"
        settings["listener.security.protocol.map"] += ",SSL:SSL"
        return Kafka(self._jars, settings).prepare(directory, port)


class SecuredPenstock(Secured):
    def prepare(self, directory: Path, port: int) -> list[str]:
        config = directory / "server.properties"
        settings = self._settings(port) | {"log.dirs": str(directory / "data")}
        config.write_text(write_properties(settings))
        program = Path(sys.executable).with_name("penstock")
        return [str(program), "up", "--config", str(config)]


def processor_s(pid: int) -> float:
    """User and system time of the process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_S


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
