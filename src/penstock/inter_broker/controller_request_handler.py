"""The broker's end of the controller's orders: applied in one step each, however they came.

Not the way to it: that is a channel. An order to an earlier life of this broker, or of an older
controller, is refused with Refusal and changes nothing, as is any before the first registration.
One that was taken is not taken again: a copy that comes late would take back what came since.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from penstock.model.cluster import (
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    ControllerRequest,
    LeaderAndIsrRequest,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from penstock.model.errors import ErrorCode, Refusal
from penstock.model.ids import TopicPartition
from penstock.replication.metadata_cache import MetadataCache, refuse_stale_controller
from penstock.replication.replica_manager import ReplicaManager


class DynamicSettings(Protocol):
    def take_dynamic(self, configs: Mapping[str, Mapping[str, str]]) -> bool:
        """What is stored for brokers; True if values of this one have changed."""


class _Position(NamedTuple):
    """Of an order among all that controllers ever gave."""

    controller_epoch: ControllerEpoch
    number: int


class ControllerRequestHandler:
    """Owned by the event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        replicas: ReplicaManager,
        cluster: MetadataCache,
        settings: DynamicSettings,
        report: Callable[[str], None],
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = BrokerEpoch(-1)  # of the present registration; -1: none yet
        self._last = _Position(ControllerEpoch(-1), 0)  # of what was taken; never moves back
        self._replicas = replicas
        self._cluster = cluster
        self._settings = settings
        self._report = report

    def set_broker_epoch(self, epoch: BrokerEpoch) -> None:
        """Called with each registration, before an order can come that knows of it."""
        self.broker_epoch = epoch
        self._replicas.set_broker_epoch(epoch)

    def handle(self, sent: ControllerRequest) -> None:
        if self.broker_epoch < 0:
            # It may be for the life before this one, whose registration is still there: what that
            # one had on its disk, this one may have lost.
            raise Refusal(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {self.broker_id} has started and not registered yet",
            )
        # A newer epoch is this life's own, of which the answer has not come yet (KAFKA-9839).
        if sent.broker_epoch < self.broker_epoch:
            raise Refusal(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the order is for broker {self.broker_id} of epoch {sent.broker_epoch}, which "
                f"has registered anew as {self.broker_epoch}",
            )
        order = sent.body
        refuse_stale_controller(order.controller_epoch, self._last.controller_epoch)
        position = _Position(order.controller_epoch, sent.number)
        if position > self._last:
            self._obey(sent)
            self._last = position

    def _obey(self, sent: ControllerRequest) -> None:
        order = sent.body
        if isinstance(order, LeaderAndIsrRequest):
            self._tell_failures("take up", self._replicas.become_leader_or_follower(order))
        elif isinstance(order, StopReplicaRequest):
            self._tell_failures("stop", self._replicas.stop_replicas(order))
        else:
            self._update(order, sent.broker_epoch)

    def _update(self, update: UpdateMetadataRequest, broker_epoch: BrokerEpoch) -> None:
        if update.broker_configs is not None and self._settings.take_dynamic(update.broker_configs):
            self._replicas.reconfigure_all()
        self._cluster.apply(update)
        if update.is_full and len(self._cluster.brokers) > 1:
            self._remove_strays(update, broker_epoch)

    def _remove_strays(self, update: UpdateMetadataRequest, broker_epoch: BrokerEpoch) -> None:
        """Replicas that have moved to other brokers while this one was away."""
        strays = tuple(self._find_strays())
        if strays:
            self._report(f"removing {', '.join(map(str, strays))}: moved to other brokers")
            order = StopReplicaRequest(
                controller_id=update.controller_id,
                controller_epoch=update.controller_epoch,
                broker_epoch=broker_epoch,
                partitions=strays,
                delete=True,
            )
            self._tell_failures("remove", self._replicas.stop_replicas(order))

    def _find_strays(self) -> Iterator[TopicPartition]:
        """Only of topics that are known, by their ids: of others nobody says that they may go."""
        for each in self._replicas.statistics().partitions:
            name, number = each.tp
            topic = self._cluster.find_topic(name)
            if topic is None or topic.topic_id != each.topic_id:
                continue
            is_there = number < len(topic.partitions)
            if is_there and self.broker_id not in topic.partitions[number].replicas:
                yield each.tp

    def _tell_failures(self, verb: str, answers: dict[TopicPartition, ErrorCode]) -> None:
        """Such a partition answers its clients with the error; the operator hears of it here."""
        for partition, code in answers.items():
            if code is not ErrorCode.NONE:
                self._report(f"could not {verb} {partition}: {code.name}")
