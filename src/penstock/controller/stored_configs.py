"""Reads config znodes. An unreadable one is a value here, not an error: it holds up no other.

Not what the configs mean, nor whether they are valid (`config_edits`).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.controller.config_change import MAX_CONFIGS_BYTES
from penstock.controller.internal_topics import is_state
from penstock.controller.znodes import TOPIC_CONFIGS, decode_configs, topic_config_path
from penstock.logs.event_logger import EventLogger
from penstock.metadata_store.errors import DamagedZnode, NoNode
from penstock.metadata_store.interface import Session, Watch

READS_AT_ONCE = 500


class StoredConfigs(NamedTuple):
    """A config znode as it was read."""

    configs: Mapping[str, str] | None  # None: no znode, or an unreadable one
    problem: str = ""  # why it cannot be read


async def read_configs(
    session: Session, paths: Sequence[str], watch: Watch | None = None
) -> list[StoredConfigs]:
    """In the paths' order, each with a watch for the next change of a znode that exists."""
    read: list[StoredConfigs] = []
    for at in range(0, len(paths), READS_AT_ONCE):
        chunk = paths[at : at + READS_AT_ONCE]
        read += await asyncio.gather(*(_read(session, path, watch) for path in chunk))
    return read


async def read_topic_configs(session: Session, logger: EventLogger) -> dict[str, Mapping[str, str]]:
    """For opening logs before a controller is active; empty if none was ever active."""
    try:
        names = await session.children(TOPIC_CONFIGS)
    except NoNode:
        return {}
    by_topic: dict[str, Mapping[str, str]] = {}
    read = await read_configs(session, [topic_config_path(name) for name in names])
    for name, stored in zip(names, read, strict=True):
        if stored.problem:
            logger.warning("config_znode_ignored", f"{stored.problem}; {describe_unreadable(name)}")
            by_topic[name] = unreadable_configs(name)
        elif stored.configs:
            by_topic[name] = stored.configs
    return by_topic


def unreadable_configs(topic: str) -> dict[str, str]:
    """In force if nobody knows a topic's configs: no record that a reader could still need goes."""
    return {"cleanup.policy": "compact" if is_state(topic) else ""}


def describe_unreadable(topic: str) -> str:
    return f"nothing of topic {topic} is deleted by age or size until the znode is corrected"


async def _read(session: Session, path: str, watch: Watch | None) -> StoredConfigs:
    try:
        data = (await session.get(path, watch)).data
    except NoNode:
        return StoredConfigs(None)
    if len(data) > MAX_CONFIGS_BYTES:
        return StoredConfigs(
            None, f"{path} has {len(data)} bytes, but at most {MAX_CONFIGS_BYTES} are read"
        )
    try:
        return StoredConfigs(decode_configs(path, data))
    except DamagedZnode as damaged:
        return StoredConfigs(None, f"{path} cannot be read: {damaged.why}")
