"""Errors for malformed bytes: one hierarchy, so that one `except` guards a socket."""


class MalformedMessage(ValueError):
    """The bytes are not the message that they claim to be; the connection must be closed."""


class MalformedRequest(MalformedMessage):
    """Malformed bytes of a client: only its own connection is closed."""


class MalformedResponse(MalformedMessage):
    """Malformed bytes of a broker: the client closes the connection and retries elsewhere."""


class UnknownSchema(LookupError):
    """There is no such API key and version: answer UNSUPPORTED_VERSION."""


class UnencodableMessage(ValueError):
    """A value does not fit its field: a bug of the caller, never a peer's fault."""
