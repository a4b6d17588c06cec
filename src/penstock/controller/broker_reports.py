"""A broker's access to its own report and to the topics that it has replicas of.

The broker writes the report before it registers; between registrations only the controller changes
it. Invariant: a replica leaves the report only if the controller removed it or its topic is gone.
"""

from collections.abc import Callable

from penstock.controller.persistent_znodes import ensure_znodes
from penstock.controller.state_loader import read_topic_nodes
from penstock.controller.znodes import (
    BROKER_REPORTS,
    TOPICS,
    decode_report,
    encode_report,
    report_path,
)
from penstock.metadata_store.errors import BadVersion, DataTooLarge, NodeExists, NoNode
from penstock.metadata_store.interface import MAX_REQUEST_BYTES, Session
from penstock.metadata_store.paths import parent_of
from penstock.model.broker_report import BrokerReport
from penstock.model.cluster import BrokerId
from penstock.model.ids import TopicId, TopicPartition

_MAX_REPORT_BYTES = MAX_REQUEST_BYTES - 1024  # the rest is for the fence of the controller's writes


async def read_assigned(session: Session, broker: BrokerId) -> dict[TopicPartition, TopicId]:
    """The replicas that are assigned to the broker, by the topics' znodes."""
    try:
        names = await session.children(TOPICS)
    except NoNode:  # no controller was ever active
        return {}
    nodes = await read_topic_nodes(session, names)
    return {
        TopicPartition(name, number): node.topic_id
        for name, node in nodes.items()
        if node.topic_id is not None
        for number, replicas in node.replicas.items()
        if broker in replicas
    }


async def read_report(session: Session, broker: BrokerId) -> BrokerReport:
    """Empty, of incarnation 0, if the broker has never registered."""
    try:
        value = await session.get(report_path(broker))
    except NoNode:
        return BrokerReport()
    return decode_report(broker, value)


async def write_report(
    session: Session, broker: BrokerId, change: Callable[[BrokerReport], BrokerReport]
) -> None:
    """Write what `change` makes of the report; again if the controller has changed it meanwhile.
    DataTooLarge beyond about 40,000 topics."""
    await ensure_znodes(session, (parent_of(BROKER_REPORTS), BROKER_REPORTS))
    while True:
        stored = await read_report(session, broker)
        changed = change(stored)
        data = encode_report(changed)
        if len(data) > _MAX_REPORT_BYTES:
            raise DataTooLarge(
                f"{len(changed.replicas)} replicas of broker {broker} have lost records, too many "
                f"for its report of at most {_MAX_REPORT_BYTES} bytes: bring its disks back, or "
                f"move some of its replicas with penstock cluster reassign, and start it again"
            )
        try:
            if stored.version < 0:
                await session.create(report_path(broker), data)
            else:
                await session.set(report_path(broker), data, version=stored.version)
            return
        except (BadVersion, NodeExists, NoNode):
            continue
