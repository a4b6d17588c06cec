"""Where ZooKeeper is and how to log in there, from settings by the brokers' names.

For what is no broker: commands, and members of older groups.
"""

from collections.abc import Mapping

from penstock.config.effective_config import resolve_broker
from penstock.config.raw_config import RawConfig
from penstock.config.text_values import as_text
from penstock.config.zookeeper_security import ZooKeeperSecurity

_FAMILIES = ("zookeeper.", "penstock.zookeeper.")


def parse_zookeeper_security(
    settings: Mapping[str, object], *, connect: str, where: str
) -> ZooKeeperSecurity:
    """Raises ValueError, also for a setting of something else. `where` names them in errors."""
    texts = {name: as_text(value) for name, value in settings.items()}
    for name in texts:
        if not name.startswith(_FAMILIES):
            raise ValueError(f"{where}: {name} is not a setting of the connection to ZooKeeper")
    raw_config = RawConfig.from_mapping({**texts, "zookeeper.connect": connect}, where=where)
    return ZooKeeperSecurity.from_settings(resolve_broker(raw_config))
