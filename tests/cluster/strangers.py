"""Strangers at the doors of a cluster, without a pause: what each of them hears must be nothing."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import penstock
from penstock.client.errors import AuthenticationFailed, ClientError
from penstock.testing import Cluster
from penstock.testing.certificates import CertificateAuthority

_TIMEOUT_S = 10.0
_PAUSE_S = 0.1
# Metadata, version 0, of all topics: correlation id 7, client id "x".
_METADATA = bytes.fromhex("0000000f 0003 0000 00000007 0001 78 00000000".replace(" ", ""))


class Strangers:
    """From the start until `stop`, against all brokers in turn."""

    def __init__(self, cluster: Cluster, brokers: Iterable[int], folder: Path) -> None:
        """`cluster` has the security "mtls_scram"; `folder` gets a forged certificate."""
        self.heard: list[str] = []
        self.refused: Counter[str] = Counter()
        self._cluster = cluster
        self._clients = [cluster.address(broker, "CLIENTS") for broker in brokers]
        self._brokers = [cluster.address(broker, "BROKERS") for broker in brokers]
        other = CertificateAuthority().issue("broker").write(folder)
        self._anonymous, self._forged = _trusting_context(), _trusting_context()
        self._forged.load_cert_chain(other.pem_keystore)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10 * _TIMEOUT_S)
        assert not self._thread.is_alive()

    def check(self, at_least: int) -> None:
        """That each of them was turned away at least so often, and none was answered."""
        assert self.heard == []
        assert len(self.refused) == len(self._attempts())
        assert min(self.refused.values()) >= at_least, self.refused

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            for name, attempt in self._attempts().items():
                self._try(name, attempt, number)
            number += 1
            time.sleep(_PAUSE_S)

    def _attempts(self) -> dict[str, Callable[[int], bytes]]:
        return {
            "plaintext to the clients' port": lambda n: self._ask(self._clients, n, None),
            "no login": lambda n: self._ask(self._clients, n, self._anonymous),
            "plaintext to the brokers' port": lambda n: self._ask(self._brokers, n, None),
            "no certificate": lambda n: self._ask(self._brokers, n, self._anonymous),
            "a forged certificate": lambda n: self._ask(self._brokers, n, self._forged),
            "a wrong password": self._log_in,
        }

    def _try(self, name: str, attempt: Callable[[int], bytes], number: int) -> None:
        """A broker that is down refuses nobody, so it does not count."""
        try:
            answer = attempt(number)
        except (ConnectionRefusedError, TimeoutError):
            return
        except (OSError, AuthenticationFailed):
            answer = b""
        except ClientError:
            return
        self.refused[name] += 1
        # An alert of TLS is no answer; one to Metadata begins with its length and correlation id.
        if answer[4:8] == b"\0\0\0\7":
            self.heard.append(f"{name}: {answer[:40]!r}")

    def _ask(self, addresses: Sequence[str], number: int, context: ssl.SSLContext | None) -> bytes:
        host, _, port = addresses[number % len(addresses)].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
            if context is None:
                connection.sendall(_METADATA)
                return connection.recv(4096)
            with context.wrap_socket(connection) as secured:
                secured.sendall(_METADATA)
                return secured.recv(4096)

    def _log_in(self, number: int) -> bytes:
        server = self._clients[number % len(self._clients)]
        config = {**self._cluster.client_config, "sasl.password": "guessed"}
        config["bootstrap.servers"] = server
        with penstock.Admin(server, config=config) as admin:
            admin.describe_cluster()
        return _METADATA[:4] + b"\0\0\0\7"  # it got in


def _trusting_context() -> ssl.SSLContext:
    """Of somebody who does not mind who the broker is."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
