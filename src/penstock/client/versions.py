"""Version negotiation: the highest version that both the broker and this client support."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from penstock.client.call import Call
from penstock.model.errors import ErrorCode
from penstock.protocol.api_keys import ApiKey
from penstock.protocol.batch import Buffer
from penstock.protocol.messages import decode_response

# The software's name and version must match Kafka's pattern, or the request is refused.
API_VERSIONS = Call(
    ApiKey.API_VERSIONS,
    range(4),
    {"client_software_name": "penstock", "client_software_version": "0.1.0"},
)


class VersionRange(NamedTuple):
    lowest: int
    highest: int

    def __str__(self) -> str:
        return f"versions {self.lowest} to {self.highest}"


def pick_version(ours: range, served: VersionRange | None) -> int | None:
    """The highest version that both support, or None."""
    if served is None:
        return None
    version = min(ours[-1], served.highest)
    return version if version >= max(ours[0], served.lowest) else None


def read_ranges(answer: Any) -> Mapping[int, VersionRange]:
    return {
        int(key.api_key): VersionRange(key.min_version, key.max_version) for key in answer.api_keys
    }


def decode_api_versions(version: int, body: Buffer) -> Any:
    """A broker that does not support the requested version answers in version 0."""
    is_unsupported = bytes(body[:2]) == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
    return decode_response(ApiKey.API_VERSIONS, 0 if is_unsupported else version, body)
