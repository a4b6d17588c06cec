"""Looks up, once per topic, whether it takes delayed messages.

Any other topic would deliver a record with a delay at once. Only what a cluster says for certain is
refused: whoever may not read configs, or finds no broker, is not held up.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any

from penstock.client.admin_values import ConfigResource
from penstock.client.blocking_admin import Admin
from penstock.client.errors import ClientError, InvalidConfig, UnknownTopicOrPartition
from penstock.model.errors import ErrorCode

_SETTING = "penstock.delayed.messages"
_log = logging.getLogger("penstock.producer")


class DelayedTopics:
    """Any thread may use it."""

    def __init__(self, bootstrap_servers: str, timeout_s: float, config: Mapping[str, Any]) -> None:
        self._servers = bootstrap_servers
        self._timeout_s = timeout_s
        self._config = config
        self._lock = threading.Lock()
        self._checked: set[str] = set()

    def check(self, topic: str) -> None:
        """InvalidConfig: it takes none. UnknownTopicOrPartition: it does not exist."""
        if topic in self._checked:
            return
        with self._lock:
            if topic not in self._checked:
                self._look_up(topic)
                self._checked.add(topic)

    def _look_up(self, topic: str) -> None:
        resource = ConfigResource.topic(topic)
        try:
            with Admin(self._servers, timeout_s=self._timeout_s, config=self._config) as admin:
                described = admin.describe_configs(resource, names=[_SETTING])[resource]
        except UnknownTopicOrPartition:
            raise  # if it is created by this record, it takes none
        except ClientError as error:
            _log.warning("whether topic %s takes delayed messages is not known: %s", topic, error)
            return
        entry = described.get(_SETTING)
        if entry is None or entry.value != "true":
            raise InvalidConfig(
                f"topic {topic}",
                ErrorCode.INVALID_CONFIG,
                f"it has no {_SETTING}=true and would deliver the record at once; see "
                f"`penstock topic alter {topic} --config {_SETTING}=true`",
            )
