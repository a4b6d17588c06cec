"""A collector for tests: a real HTTP server that decodes what it is sent."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import Queue
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric


class Pushed(NamedTuple):
    path: str
    headers: dict[str, str]  # by name in lower case
    message: ExportMetricsServiceRequest

    def metrics(self) -> dict[str, Metric]:
        (resource,) = self.message.resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def resource(self) -> dict[str, str]:
        (resource,) = self.message.resource_metrics
        return {pair.key: pair.value.string_value for pair in resource.resource.attributes}


class OtlpReceiver:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1/metrics"
        self.pushed: Queue[Pushed] = Queue()
        self.status = 200


@contextmanager
def receive_otlp() -> Iterator[OtlpReceiver]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            message = ExportMetricsServiceRequest.FromString(body)
            receiver.pushed.put(Pushed(self.path, headers, message))  # before it is answered
            self.send_response(receiver.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (its name)
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver = OtlpReceiver(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, name="otlp-receiver")
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
