"""Broker registration, the candidacy for controller, and cluster, broker and topic ids.

Not what follows: the registration is an ephemeral znode and ends with the session.
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
from penstock.metadata_store.errors import DamagedZnode, MultiFailed, NodeExists, NoNode
from penstock.metadata_store.interface import Create, Delete, Session, SessionId, Value
from penstock.metadata_store.paths import parent_of
from penstock.model.cluster import BrokerEpoch, BrokerId, BrokerNode, Endpoint
from penstock.model.ids import TopicId

CONTROLLER_QUEUE = "/controller_queue"  # with controller.election=queue
_RESERVED = frozenset((UUID(int=0), UUID(int=1)))  # Kafka gives them a special meaning


class BrokerIdTaken(Exception):
    """Another process is registered with this id."""


async def check_id_is_free(
    session: Session, broker_id: BrokerId, endpoints: tuple[Endpoint, ...]
) -> None:
    """BrokerIdTaken if `register_broker` would raise it now: for what a start must not do under
    the id of another."""
    existing = await _find(session, broker_path(broker_id))
    if existing is not None and not _is_same(broker_id, endpoints, existing):
        raise _taken(broker_id, existing)


async def register_broker(
    session: Session,
    node: BrokerNode,
    *,
    now_ms: int,
    own_sessions: Collection[SessionId] = (),
) -> BrokerEpoch:
    """Returns the broker epoch; `node.epoch` is ignored.

    A registration left over from before a restart is replaced at once, without waiting for its
    session to expire (KAFKA-1387, KAFKA-7165). It is recognized by its session, or by the same
    endpoints, which no other process can have while this one listens there.
    """
    await ensure_znodes(session, (parent_of(BROKER_IDS), BROKER_IDS))
    path = broker_path(node.id)
    create = Create(path=path, data=encode_broker(node, now_ms=now_ms), ephemeral=True)
    while True:
        try:
            created = await session.create(path, create.data, ephemeral=True)
            return BrokerEpoch(created.stat.czxid)
        except NodeExists:
            existing = await _find(session, path)
        if existing is None:
            continue  # deleted meanwhile
        if existing.stat.ephemeral_owner == session.id:
            return BrokerEpoch(existing.stat.czxid)  # an earlier attempt did succeed
        is_own = existing.stat.ephemeral_owner in own_sessions
        if not is_own and not _is_same(node.id, node.endpoints, existing):
            raise _taken(node.id, existing)
        with suppress(MultiFailed):  # changed or deleted meanwhile: read it again
            await session.multi([Delete(path=path, version=existing.stat.version)])


def controller_election(
    session: Session, broker_id: BrokerId, *, now_ms: int, policy: str = "race"
) -> Election:
    """The candidacy of a registered broker; a /controller left over from itself is no obstacle.

    `policy` is `controller.election`, race or queue; it must be the same on all brokers.
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
    """The first broker of the cluster creates it; it never changes."""
    value = await _find(session, CLUSTER_ID)
    if value is None:
        cluster_id = encode_cluster_id(format_uuid(random_topic_id()))
        await ensure_znodes(session, (parent_of(CLUSTER_ID), CLUSTER_ID), cluster_id)
        value = await session.get(CLUSTER_ID)
    return decode_cluster_id(value.data)


async def next_generated_broker_id(session: Session, *, reserved_max: int) -> BrokerId:
    """An id for a broker without broker.id: above the reserved ids, and never used before."""
    await ensure_znodes(session, (parent_of(BROKER_SEQUENCE), BROKER_SEQUENCE))
    stat = await session.set(BROKER_SEQUENCE, b"")
    return BrokerId(reserved_max + stat.version)


def random_topic_id() -> TopicId:
    """Not one of Kafka's reserved ids, and none whose text looks like an option (-x)."""
    while True:
        uuid = uuid4()
        if uuid not in _RESERVED and not format_uuid(uuid).startswith("-"):
            return TopicId(uuid)


def _taken(broker_id: BrokerId, existing: Value) -> BrokerIdTaken:
    return BrokerIdTaken(
        f"broker id {broker_id} is registered by another process, at "
        f"{existing.data[:200].decode(errors='replace')}; stop that one, give this one "
        f"another broker.id, or wait until the other's session has expired"
    )


def _is_same(broker_id: BrokerId, endpoints: tuple[Endpoint, ...], value: Value) -> bool:
    try:
        registered = decode_broker(broker_id, value)
    except DamagedZnode:
        return False
    return registered.endpoints == endpoints


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
