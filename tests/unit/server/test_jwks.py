"""An issuer's keys: fetched from a file or from https, without redirection, and again later."""

import json
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from penstock.server.jwks import JwksUnavailable, fetch_keys
from penstock.testing.certificates import CertificateAuthority

HANG_S = 120


def write_keys(path: Path, kid: str) -> str:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = {**json.loads(RSAAlgorithm.to_jwk(key.public_key())), "kid": kid, "alg": "RS256"}
    path.write_text(json.dumps({"keys": [public]}))
    return path.as_uri()


def test_keys_are_read_from_a_file(tmp_path: Path) -> None:
    [key] = fetch_keys(write_keys(tmp_path / "keys", "one"))
    assert (key.key_id, key.algorithm_name) == ("one", "RS256")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "JSONDecodeError"),
        ("[1, 2]", "not a JSON Web Key Set"),
        ('{"keys": []}', "no key for signatures"),
        (" " * (1024 * 1024 + 1), "more than 1048576 bytes"),
    ],
)
def test_a_document_without_keys_is_refused(tmp_path: Path, content: str, why: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(JwksUnavailable, match=why):
        fetch_keys(file.as_uri())


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/keys", "ftp://127.0.0.1/keys", "keys.json", "data:,{}"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(JwksUnavailable, match="https or file is needed"):
        fetch_keys(url)


def test_an_issuer_that_does_not_answer_is_named() -> None:
    with pytest.raises(JwksUnavailable, match=r"https://127\.0\.0\.1:1/keys: .*refused"):
        fetch_keys("https://127.0.0.1:1/keys")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"SSH-2.0-nothing\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "IncompleteRead|JSONDecodeError"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000, "RecursionError|JSONDecodeError"),
    ],
    ids=["no HTTP", "cut off", "too deep"],
)
def test_an_issuer_that_answers_nonsense_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bytes, why: str
) -> None:
    """Any other error would end the broker, whose task fetches the keys again and again."""
    files = CertificateAuthority().issue("issuer").write(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(HANG_S)
        port = listening.getsockname()[1]

        def answer_once() -> None:
            accepted, _ = listening.accept()
            accepted.settimeout(HANG_S)
            with context.wrap_socket(accepted, server_side=True) as sock:
                while b"\r\n\r\n" not in sock.recv(65_536):
                    pass
                sock.sendall(answer)

        serving = threading.Thread(target=answer_once)
        serving.start()
        with pytest.raises(JwksUnavailable, match=f"https://127.0.0.1:{port}/keys: ({why})"):
            fetch_keys(f"https://127.0.0.1:{port}/keys")
        serving.join()
