"""Builds the responses of private APIs: success, refusal, unsupported version."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.apis.api import Request
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_response import PrivateResponse, encode_private_response

if TYPE_CHECKING:
    from penstock.apis.services import Services


def respond_success(versions: range) -> bytes:
    return encode_private_response(PrivateResponse(ErrorCode.NONE, None, versions[0], versions[-1]))


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
