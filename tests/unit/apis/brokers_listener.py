"""Lets a harness serve requests of other brokers on its client listener."""

from dataclasses import replace
from typing import Any, cast

from tests.unit.apis.harness import LISTENER, ApiHarness

from penstock.apis.dispatcher import Dispatcher
from penstock.apis.inter_broker_access import InterBroker
from penstock.apis.registry import APIS
from penstock.inter_broker.apis.registry import load_private_api
from penstock.model.cluster import ControllerRequest


def let_brokers_in(harness: ApiHarness, listener: str = LISTENER) -> None:
    """Accept requests of followers; controller requests are not expected."""

    def handle_controller_request(sent: ControllerRequest) -> None:
        raise NotImplementedError

    nobody = cast("Any", None)
    inter_broker = InterBroker(
        listener=listener,
        membership=nobody,
        configs=nobody,
        handle_controller_request=handle_controller_request,
        load_api=load_private_api,
    )
    harness.services = replace(harness.services, inter_broker=inter_broker)
    harness.dispatcher = Dispatcher(APIS, harness.services)
