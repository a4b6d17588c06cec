"""Transactions of aiokafka."""

from __future__ import annotations

import pytest
from tests.clients.transactions.scenarios import TransactionScenarios
from tests.clients.transactions.workers import TransactionClient, python_worker
from tests.clients.under_test import BrokerUnderTest

pytestmark = pytest.mark.xdist_group("transactions-python")


@pytest.fixture(scope="module")
def client(transaction_broker: BrokerUnderTest) -> TransactionClient:
    command = python_worker("aiokafka", transaction_broker.bootstrap_servers)
    return TransactionClient(command, fenced=frozenset({"ProducerFenced"}))


class TestAioKafka(TransactionScenarios):
    pass
