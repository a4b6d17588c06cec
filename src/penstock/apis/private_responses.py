"""Builds the responses of private APIs: success, payload, refusal, unsupported version."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.apis.api import Request
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_response import (
    PrivateResponse,
    encode_payload_response,
    encode_private_response,
)

if TYPE_CHECKING:
    from penstock.apis.services import Services


def respond_success(versions: range) -> bytes:
    return encode_private_response(PrivateResponse(ErrorCode.NONE, None, versions[0], versions[-1]))


def respond_payload(
    payload: Sequence[bytes], versions: range, *, is_truncated: bool = False
) -> list[Any]:
    """The response in parts, so that a large payload is not copied."""
    response = PrivateResponse(
        ErrorCode.NONE, None, versions[0], versions[-1], is_truncated=is_truncated
    )
    return encode_payload_response(response, payload)


def respond_refusal(refusal: Refusal, versions: range) -> bytes:
    return encode_private_response(
        PrivateResponse(refusal.code, refusal.message, versions[0], versions[-1])
    )


def respond_unsupported(versions: range) -> Callable[[Request, "Services"], None]:
    """A broker of another release learns the supported versions and retries with one of them."""

    def reply(request: Request, services: "Services") -> None:
        refusal = Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"this broker does not support {request.key.title} v{request.version}",
        )
        request.reply(respond_refusal(refusal, versions))

    return reply
