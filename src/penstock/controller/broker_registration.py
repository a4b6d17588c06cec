"""A broker's place in the tree: its registration, its candidacy, the cluster's and a topic's id.

Not its life afterwards: the registration is ephemeral and goes with the session.
"""

from collections.abc import Collection
from contextlib import suppress
from uuid import UUID, uuid4

from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.znodes import (
    BROKER_IDS,
    BROKER_SEQUENCE,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    DamagedZnode,
    broker_path,
    decode_broker,
    decode_cluster_id,
    decode_controller,
    encode_broker,
    encode_cluster_id,
    encode_controller,
    format_uuid,
)
from penstock.metadata_store.election import Candidate, Election, QueueElection, RaceElection
from penstock.metadata_store.errors import MultiFailed, NodeExists, NoNode
from penstock.metadata_store.interface import Create, Delete, Session, SessionId, Value
from penstock.metadata_store.paths import parent_of
from penstock.model.cluster import BrokerEpoch, BrokerId, BrokerNode
from penstock.model.ids import TopicId

CONTROLLER_QUEUE = "/controller_queue"  # where controller.election=queue
_RESERVED = frozenset((UUID(int=0), UUID(int=1)))  # Kafka gives them meanings of their own


class BrokerIdTaken(Exception):
    """Another process is registered with this id."""


async def register_broker(
    session: Session,
    node: BrokerNode,
    *,
    now_ms: int,
    own_sessions: Collection[SessionId] = (),
) -> BrokerEpoch:
    """Its epoch; `node.epoch` is not looked at.

    A registration that this broker's earlier life left behind is replaced at once, without a
    wait for that session's end (KAFKA-1387, KAFKA-7165): known by its session, or by the same
    addresses, which no other process can have while this one listens there.
    """
    await ensure_znodes(session, (parent_of(BROKER_IDS), BROKER_IDS))
    path = broker_path(node.id)
    create = Create(path=path, data=encode_broker(node, now_ms=now_ms), ephemeral=True)
    while True:
        try:
            created = await session.create(path, create.data, ephemeral=True)
            return BrokerEpoch(created.stat.czxid)
        except NodeExists:
            found = await _find(session, path)
        if found is None:
            continue  # gone in between
        if found.stat.ephemeral_owner == session.id:
            return BrokerEpoch(found.stat.czxid)  # an earlier try came through after all
        if found.stat.ephemeral_owner not in own_sessions and not _is_same(node, found):
            raise BrokerIdTaken(
                f"broker id {node.id} is registered by another process, at "
                f"{found.data[:200].decode(errors='replace')}; stop that one, give this one "
                f"another broker.id, or wait until the other's session has ended"
            )
        with suppress(MultiFailed):  # it changed or went: look again
            await session.multi([Delete(path=path, version=found.stat.version)])


def controller_election(
    session: Session, broker_id: BrokerId, *, now_ms: int, policy: str = "race"
) -> Election:
    """The candidacy of a registered broker: its own left-over node does not hold it up.

    `policy` is `controller.election`, the same on all brokers: race, or queue.
    """
    candidate = Candidate(
        data=encode_controller(broker_id, now_ms=now_ms),
        owns=lambda data: _is_controller(data, broker_id),
    )
    if policy == "queue":
        return QueueElection(
            session,
            candidate,
            queue_path=CONTROLLER_QUEUE,
            leader_path=CONTROLLER,
            epoch_path=CONTROLLER_EPOCH,
        )
    return RaceElection(session, candidate, leader_path=CONTROLLER, epoch_path=CONTROLLER_EPOCH)


async def get_or_create_cluster_id(session: Session) -> str:
    """The same for all brokers of the cluster, for ever; the first of them makes it."""
    found = await _find(session, CLUSTER_ID)
    if found is None:
        cluster_id = encode_cluster_id(format_uuid(random_topic_id()))
        await ensure_znodes(session, (parent_of(CLUSTER_ID), CLUSTER_ID), cluster_id)
        found = await session.get(CLUSTER_ID)
    return decode_cluster_id(found.data)


async def next_generated_broker_id(session: Session, *, reserved_max: int) -> BrokerId:
    """For a broker that was given none: above the ids that people give, never the same twice."""
    await ensure_znodes(session, (parent_of(BROKER_SEQUENCE), BROKER_SEQUENCE))
    stat = await session.set(BROKER_SEQUENCE, b"")
    return BrokerId(reserved_max + stat.version)


def random_topic_id() -> TopicId:
    """Not one of Kafka's reserved ids, and not one whose text looks like an option (-x)."""
    while True:
        uuid = uuid4()
        if uuid not in _RESERVED and not format_uuid(uuid).startswith("-"):
            return TopicId(uuid)


def _is_same(node: BrokerNode, found: Value) -> bool:
    try:
        registered = decode_broker(node.id, found)
    except DamagedZnode:
        return False
    return registered.endpoints == node.endpoints


def _is_controller(data: bytes, broker_id: BrokerId) -> bool:
    try:
        return decode_controller(data) == broker_id
    except DamagedZnode:
        return False


async def _find(session: Session, path: str) -> Value | None:
    try:
        return await session.get(path)
    except NoNode:
        return None
