"""What becomes of an identity provider that answers nonsense: an error that names it."""

import socket
import threading

import pytest

from penstock.client.errors import AuthenticationFailed
from penstock.client.security.config import OidcLogin
from penstock.client.security.oauth_tokens import fetch_token

HANG_S = 120
DEEP = b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"SSH-2.0-s3cret\r\n", "gives no answer of HTTP: BadStatusLine"),
        (DEEP, "answers without access_token"),
    ],
    ids=["no HTTP", "too deep"],
)
def test_a_provider_that_answers_nonsense_is_named(answer: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(HANG_S)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/token"

        def answer_once() -> None:
            accepted, _ = listening.accept()
            with accepted:
                accepted.settimeout(HANG_S)
                received = b""
                while b"grant_type" not in received:
                    received += accepted.recv(65_536)
                accepted.sendall(answer)

        serving = threading.Thread(target=answer_once)
        serving.start()
        login = OidcLogin(token_endpoint=url, client_id="ada", client_secret="s3cret")
        with pytest.raises(AuthenticationFailed) as caught:
            fetch_token(login, 0.0)
        serving.join()
    assert f"{url} {why}" in str(caught.value)
    assert "s3cret" not in str(caught.value)
