"""What the controller balances or replaces by itself, from its metrics, for `cluster status`."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.cli.broker_metrics import Series, describe_brokers
from penstock.client.cluster import ClusterClient
from penstock.model.cluster import NO_BROKER, BrokerId

_NAMES = ("penstock_controller_balance_", "penstock_controller_broker_gone_seconds")
_GONE = re.compile(r'penstock_controller_broker_gone_seconds\{broker="([0-9]+)"\}')


class BalancingStatus(NamedTuple):
    pending: int
    under_way: int
    is_held: bool
    gone_s: Mapping[BrokerId, float]

    def lines(self) -> Iterator[str]:
        for broker, seconds in sorted(self.gone_s.items()):
            yield f"broker {broker} has been gone for {seconds:.0f} s"
        if self.is_held:
            yield (
                "balancing is held: too many brokers are gone at once, or too few are left; "
                "start them, or reassign their replicas"
            )
        if self.pending or self.under_way:
            yield (
                f"the controller is balancing: {self.under_way} reassignments are under way, "
                f"{self.pending} are to come"
            )

    def as_json(self) -> dict[str, object]:
        return {
            "pending": self.pending,
            "under_way": self.under_way,
            "held": self.is_held,
            "gone_seconds": {str(broker): round(s, 1) for broker, s in self.gone_s.items()},
        }


async def find_balancing(client: ClusterClient, controller: BrokerId) -> BalancingStatus | None:
    """None if nothing is to be said, or the controller does not answer."""
    if controller == NO_BROKER:
        return None
    described = await describe_brokers(client, [controller], _NAMES)
    status = read_status(described.series.get(controller, {}))
    return status if any(status) else None


def read_status(series: Series) -> BalancingStatus:
    states = "penstock_controller_balance_reassignments"
    gone = ((_GONE.fullmatch(name), seconds) for name, seconds in series.items())
    return BalancingStatus(
        pending=int(series.get(f'{states}{{state="pending"}}', 0)),
        under_way=int(series.get(f'{states}{{state="under_way"}}', 0)),
        is_held=bool(series.get("penstock_controller_balance_held", 0)),
        gone_s={BrokerId(int(match[1])): seconds for match, seconds in gone if match},
    )
