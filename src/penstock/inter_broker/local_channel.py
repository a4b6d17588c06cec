"""The controller's orders to the broker in its own process: applied in one step, no network."""

import asyncio

from penstock.inter_broker.controller_request_handler import ControllerRequestHandler
from penstock.model.cluster import BrokerNode, ControllerRequest


class LocalChannel:
    """A `controller.BrokerChannel` that knows this broker only."""

    def __init__(self, taker: ControllerRequestHandler) -> None:
        self._taker = taker

    async def send(self, node: BrokerNode, sent: ControllerRequest) -> None:
        if node.id != self._taker.broker_id:
            raise ConnectionError(f"broker {node.id} is not in this process")
        await asyncio.sleep(0)  # orders follow each other: clients have their turn in between
        self._taker.take(sent)
