"""Topic configs from the metadata store, for opening logs before a controller is active."""

import asyncio
from itertools import islice

from penstock.controller.znodes import TOPIC_CONFIGS, decode_configs, topic_config_path
from penstock.metadata_store.errors import NoNode
from penstock.metadata_store.interface import Session

READS_AT_ONCE = 500


async def read_topic_configs(session: Session) -> dict[str, dict[str, str]]:
    """Configs by topic; empty if no controller was ever active."""
    try:
        names = iter(await session.children(TOPIC_CONFIGS))
    except NoNode:
        return {}
    by_topic: dict[str, dict[str, str]] = {}
    while chunk := list(islice(names, READS_AT_ONCE)):
        read = await asyncio.gather(*(_read(session, name) for name in chunk))
        by_topic.update(
            (name, configs) for name, configs in zip(chunk, read, strict=True) if configs
        )
    return by_topic


async def _read(session: Session, topic: str) -> dict[str, str]:
    path = topic_config_path(topic)
    try:
        value = await session.get(path)
    except NoNode:  # deleted meanwhile
        return {}
    return dict(decode_configs(path, value.data))
