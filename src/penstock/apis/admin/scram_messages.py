"""The mechanisms and the errors that the two APIs of SCRAM users have in common."""

from penstock.controller.interface import ApiError
from penstock.controller.scram_store import NoSuchCredential, TooManyUserChanges
from penstock.metadata_store.errors import (
    ConnectionLoss,
    DamagedZnode,
    MetadataStoreError,
    SessionExpired,
)
from penstock.model.errors import ErrorCode
from penstock.protocol.scram import ScramMechanism

MECHANISMS = {mechanism.code: mechanism for mechanism in ScramMechanism}
# What reading and changing users may fail with.
STORE_ERRORS = (NoSuchCredential, TooManyUserChanges, DamagedZnode, MetadataStoreError)


def refuse_user(error: Exception) -> ApiError:
    """The error of a user, for one of STORE_ERRORS."""
    if isinstance(error, ConnectionLoss | SessionExpired):
        return ApiError(
            ErrorCode.REQUEST_TIMED_OUT,
            "the metadata store did not answer, so the change was made or not; describe the user, "
            "and try again",
        )
    if isinstance(error, NoSuchCredential):
        return ApiError(ErrorCode.RESOURCE_NOT_FOUND, str(error))
    if isinstance(error, TooManyUserChanges):
        return ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error))
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
