"""Sends the controller's requests to the broker in its own process, without the network."""

import asyncio

from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.model.cluster import BrokerNode, ControllerRequest


class LocalControllerChannel:
    """A `controller.ControllerChannel` to this broker only."""

    def __init__(self, handler: ControllerRequestHandler) -> None:
        self._handler = handler

    async def send(self, node: BrokerNode, request: ControllerRequest) -> None:
        if node.id != self._handler.broker_id:
            raise ConnectionError(f"broker {node.id} is not in this process")
        await asyncio.sleep(0)  # requests come in bursts: let clients have a turn in between
        self._handler.handle(request)
