"""IncrementalAlterConfigs (key 44), versions 0-1: sets and deletes single settings of topics and
brokers, appends to lists and subtracts from them (KIP-339). Other settings stay.
"""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from penstock.apis.admin.config_changes import alter
from penstock.apis.api import Api, Request
from penstock.controller.interface import ConfigEntryChange
from penstock.model.admin import ConfigOperation
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer(request: Request, services: "Services") -> Awaitable[Any]:
    return alter(request, services, _read_change, replace=False)


API = Api(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=range(2),
    answer=answer,
    elements_share=1 / 3,  # 5,000 topics with a setting each
)


def _read_change(config: Any) -> ConfigEntryChange:
    try:
        kind = ConfigOperation(config.config_operation)
    except ValueError:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"{config.name} has operation {config.config_operation}, which does not exist; "
            "0 sets, 1 deletes, 2 appends, 3 subtracts",
        ) from None
    return ConfigEntryChange(config.name, kind, config.value)
