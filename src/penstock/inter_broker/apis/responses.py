"""Answers to what brokers ask each other in our own requests: done, refused, in which versions."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.apis.api import Request
from penstock.model.errors import ErrorCode, Refusal
from penstock.protocol.private_messages import PrivateAnswer, encode_answer

if TYPE_CHECKING:
    from penstock.apis.services import Services


def answer_done(versions: range) -> bytes:
    return encode_answer(PrivateAnswer(ErrorCode.NONE, None, versions[0], versions[-1]))


def answer_refusal(refusal: Refusal, versions: range) -> bytes:
    return encode_answer(PrivateAnswer(refusal.code, refusal.message, versions[0], versions[-1]))


def answer_unsupported(versions: range) -> Callable[[Request, "Services"], None]:
    """For a broker of another release: it learns what is spoken here, and asks again."""

    def reply(request: Request, services: "Services") -> None:
        refusal = Refusal(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{request.key.title} v{request.version} is not known here",
        )
        request.reply(answer_refusal(refusal, versions))

    return reply
