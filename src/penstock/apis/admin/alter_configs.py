"""AlterConfigs (key 33), versions 0-2: replaces all settings of a topic or broker.

A setting that is not named returns to its default, so clients prefer IncrementalAlterConfigs.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from penstock.apis.admin.config_changes import alter
from penstock.apis.api import Api, Request
from penstock.controller.interface import ConfigEntryChange
from penstock.model.admin import ConfigOperation
from penstock.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> Awaitable[Any]:
    return alter(request, services, _read_change, replace=True)


API = Api(
    key=ApiKey.ALTER_CONFIGS,
    versions=range(3),
    answer=answer,
    elements_share=1 / 3,  # 5,000 topics with a setting each
)


def _read_change(config: Any) -> ConfigEntryChange:
    return ConfigEntryChange(config.name, ConfigOperation.SET, config.value)
