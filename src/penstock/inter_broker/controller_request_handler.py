"""Applies the controller's requests to this broker, each in one step on the event loop.

Not the transport: that is a ControllerChannel. Requests with a stale controller or broker epoch,
and any request before the first registration, are rejected with Refusal and change nothing.
Invariant: a request is applied once, because a late copy would undo newer requests. Epochs are
checked here only: ReplicaManager and MetadataCache rely on it.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

from penstock.inter_broker.update_parts import UpdateParts
from penstock.logs.event_logger import EventLogger
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
from penstock.replication.metadata_cache import MetadataCache
from penstock.replication.replica_manager import ReplicaManager


class TakesDynamicConfigs(Protocol):
    def take_dynamic(self, configs: Mapping[str, Mapping[str, str]]) -> bool:
        """All stored broker configs; True if the effective config of this broker changed."""


class _Position(NamedTuple):
    """Orders requests across controllers."""

    controller_epoch: ControllerEpoch
    number: int


class ControllerRequestHandler:
    """Owned by the event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        *,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        dynamic_config: TakesDynamicConfigs,
        logger: EventLogger,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = BrokerEpoch(-1)  # of the current registration; -1: none yet
        self._last = _Position(ControllerEpoch(-1), 0)  # applied last; never moves back
        self._replicas = replicas
        self._metadata = metadata
        self._parts = UpdateParts()
        self._dynamic_config = dynamic_config
        self._logger = logger

    def set_broker_epoch(self, epoch: BrokerEpoch) -> None:
        """Call it at every registration, before a request with the new epoch can arrive."""
        self.broker_epoch = epoch

    def handle(self, request: ControllerRequest) -> None:
        if self.broker_epoch < 0:
            # It may be meant for the previous incarnation, whose registration still exists and
            # whose disk may have had records that this one has lost.
            raise Refusal(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {self.broker_id} has started and is not registered yet",
            )
        # A newer epoch is our own, and the store's response has not arrived yet (KAFKA-9839).
        if request.broker_epoch < self.broker_epoch:
            raise Refusal(
                ErrorCode.STALE_BROKER_EPOCH,
                f"the request is for epoch {request.broker_epoch} of broker {self.broker_id}, "
                f"whose epoch is now {self.broker_epoch}",
            )
        controller_epoch = request.body.controller_epoch
        if controller_epoch < self._last.controller_epoch:
            raise Refusal(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"a request of controller epoch {controller_epoch} came after one of epoch "
                f"{self._last.controller_epoch}; that controller was replaced and must resign",
            )
        position = _Position(controller_epoch, request.number)
        if position > self._last:
            whole = self._parts.join(request)
            if whole is not None:
                self._apply(whole)
                self._last = position

    def _apply(self, request: ControllerRequest) -> None:
        body = request.body
        if isinstance(body, LeaderAndIsrRequest):
            codes = self._replicas.become_leader_or_follower(body)
            self._report_failures("apply LeaderAndIsr to", codes)
        elif isinstance(body, StopReplicaRequest):
            self._report_failures("stop", self._replicas.stop_replicas(body))
        else:
            self._update_metadata(body, request.broker_epoch)

    def _update_metadata(self, update: UpdateMetadataRequest, broker_epoch: BrokerEpoch) -> None:
        configs = update.broker_configs
        if configs is not None and self._dynamic_config.take_dynamic(configs):
            self._replicas.reconfigure_all()
        self._metadata.apply(update)
        if update.is_full and len(self._metadata.brokers) > 1:
            self._remove_strays(update, broker_epoch)

    def _remove_strays(self, update: UpdateMetadataRequest, broker_epoch: BrokerEpoch) -> None:
        """Delete replicas that were reassigned to other brokers while this one was down."""
        strays = tuple(self._find_strays())
        if strays:
            self._logger.info(
                "replica_deleted",
                f"deleting {', '.join(map(str, strays))}: reassigned to other brokers",
            )
            stop = StopReplicaRequest(
                controller_id=update.controller_id,
                controller_epoch=update.controller_epoch,
                broker_epoch=broker_epoch,
                partitions=strays,
                delete=True,
            )
            self._report_failures("delete", self._replicas.stop_replicas(stop))

    def _find_strays(self) -> Iterator[TopicPartition]:
        """Strays of topics in the metadata, by id; nothing says that others may be deleted."""
        for replica in self._replicas.statistics().partitions:
            name, partition = replica.tp
            topic = self._metadata.find_topic(name)
            if topic is None or topic.topic_id != replica.topic_id:
                continue
            exists = partition < len(topic.partitions)
            if exists and self.broker_id not in topic.partitions[partition].replicas:
                yield replica.tp

    def _report_failures(self, action: str, codes: dict[TopicPartition, ErrorCode]) -> None:
        """Clients of such a partition get the error code; the operator sees it in the log."""
        for tp, code in codes.items():
            if code is not ErrorCode.NONE:
                self._logger.warning(
                    "controller_request_failed", f"could not {action} {tp}: {code.name}"
                )
