"""Errors for malformed bytes: one hierarchy, so that one `except` guards a socket."""


class MalformedMessage(ValueError):
    """The bytes are not the message that they claim to be; the connection must be closed."""


class MalformedRequest(MalformedMessage):
    """Malformed bytes of a client: only its own connection is closed."""


class RequestOverLimit(MalformedRequest):
    """A request above a limit, whether its bytes are valid or not: its connection is closed."""

    def __init__(self, reason: str, *, is_logged: bool = True) -> None:
        super().__init__(reason)
        self.is_logged = is_logged  # false for what the log has said before


class MalformedResponse(MalformedMessage):
    """Malformed bytes of a broker: the client closes the connection and retries elsewhere."""


class UnknownSchema(LookupError):
    """There is no such API key and version: answer UNSUPPORTED_VERSION."""


class UnencodableMessage(ValueError):
    """A value does not fit its field: a bug of the caller, never a peer's fault."""
