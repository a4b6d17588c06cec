"""Our Java transactional client, for each version of Kafka's Java client."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.clients.java_programs import resolve_java_program
from tests.clients.transactions.workers import TransactionClient
from tests.interop.kafka_jars import KafkaUnavailableError, Say

FENCED = frozenset({"ProducerFencedException"})
_SOURCE = Path(__file__).parent / "java" / "TransactionWorker.java"


def java_worker(version: str, bootstrap: str, say: Say) -> TransactionClient:
    try:
        clients = resolve_java_program(version, _SOURCE, say)
    except KafkaUnavailableError as error:
        pytest.skip(f"skipped: {error}")
    return TransactionClient(clients.command("TransactionWorker", bootstrap), FENCED)
