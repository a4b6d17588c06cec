"""A small stand-in for a schema registry with Confluent's REST API, on loopback, for tests."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class StandInRegistry:
    """Subjects with their schemas. A Protobuf schema is kept as its descriptor in base64."""

    def __init__(self) -> None:
        self.url = ""
        self.auth: str | None = None  # user:password
        self.requests: list[str] = []
        self._schemas: list[tuple[str, str]] = []  # (kind, text); the id is the place, from 1
        self._subjects: dict[str, list[int]] = {}

    def register(self, subject: str, kind: str, text: str) -> int:
        schema = (kind, text)
        if schema not in self._schemas:
            self._schemas.append(schema)
        schema_id = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def text_of(self, schema_id: int) -> str:
        return self._schemas[schema_id - 1][1]

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, dict[str, Any]]:
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")]
        match parts:
            case ["subjects", subject, "versions"] if body is not None:
                kind = body.get("schemaType", "AVRO")
                return 200, {"id": self.register(subject, kind, body["schema"])}
            case ["subjects", subject, "versions", "latest"] if subject in self._subjects:
                schema_id = self._subjects[subject][-1]
                return 200, {"subject": subject, "id": schema_id, **self._describe(schema_id)}
            case ["schemas", "ids", number] if 0 < int(number) <= len(self._schemas):
                return 200, self._describe(int(number))
            case ["subjects", subject, *_]:
                return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _describe(self, schema_id: int) -> dict[str, Any]:
        kind, text = self._schemas[schema_id - 1]
        return {"schema": text, **({} if kind == "AVRO" else {"schemaType": kind})}


@contextmanager
def stand_in_registry() -> Iterator[StandInRegistry]:
    registry = StandInRegistry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            self._answer(json.loads(self.rfile.read(length)))

        def _answer(self, body: dict[str, Any] | None) -> None:
            registry.requests.append(self.path)
            status, content = registry.answer(self.path, body)
            if registry.auth is not None:
                expected = f"Basic {base64.b64encode(registry.auth.encode()).decode()}"
                if self.headers.get("Authorization") != expected:
                    status, content = 401, {"error_code": 401, "message": "Unauthorized"}
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
