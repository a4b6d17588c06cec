"""Clients in JavaScript and Go against the broker: kafkajs, kafka-go, sarama, franz-go.

`python -m tests.outside` runs the same programs, and more, against a broker and against a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.kafka_jars import Say
from tests.outside.brokers import Brokers, open_brokers
from tests.outside.entries import Entry, quick_entries
from tests.outside.trials import Verdict, try_entry
from tests.profile import is_long

pytestmark = [
    pytest.mark.xdist_group("clients-outside"),
    pytest.mark.skipif(not is_long(), reason="npm and Go fetch and build for minutes: make verify"),
]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with open_brokers(1, tmp_path_factory.mktemp("outside")) as brokers:
        yield brokers


@pytest.mark.timeout(1200)  # the first test also downloads and builds
@pytest.mark.parametrize("entry", quick_entries(), ids=lambda entry: entry.name)
def test_a_client_in_another_language_passes_every_step(
    entry: Entry, brokers: Brokers, tmp_path_factory: pytest.TempPathFactory, say: Say
) -> None:
    trial = try_entry(entry, brokers, tmp_path_factory.mktemp(entry.name), say)
    if trial.verdict is Verdict.SKIPPED:
        pytest.skip(f"skipped: {trial.reason}")
    assert trial.verdict is Verdict.PASSED, trial.reason
