"""A bench that takes requests of other brokers, on the listener that its clients use, too."""

from dataclasses import replace
from typing import Any, cast

from tests.unit.handlers.workbench import LISTENER, Workbench

from penstock.handlers.api_table import APIS
from penstock.handlers.dispatch import Dispatcher
from penstock.handlers.inter_broker import InterBroker
from penstock.model.cluster import SentOrder


def let_brokers_in(bench: Workbench, listener: str = LISTENER) -> None:
    """As followers: nobody asks its controller for anything."""

    def take_order(sent: SentOrder) -> None:
        raise NotImplementedError

    nobody = cast("Any", None)
    known = InterBroker(listener=listener, membership=nobody, configs=nobody, take_order=take_order)
    bench.services = replace(bench.services, inter_broker=known)
    bench.dispatcher = Dispatcher(APIS, bench.services)
