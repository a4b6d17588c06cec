"""Errors for malformed bytes: one hierarchy, so that one `except` guards a socket."""


class MalformedMessage(ValueError):
    """The bytes are not the message that they claim to be; the connection must be closed."""

    is_logged = True  # false for what the log has said before


class MalformedRequest(MalformedMessage):
    """Malformed bytes of a client: only its own connection is closed."""


class UnknownApiKey(MalformedRequest):
    def __init__(self, api_key: int) -> None:
        super().__init__(f"API key {api_key} does not exist")
        self.api_key = api_key


class RequestOverLimit(MalformedRequest):
    """A request above a limit, whether its bytes are valid or not: its connection is closed."""

    def __init__(
        self,
        reason: str,
        *,
        api: str | None = None,
        client_id: str | None = None,
        is_logged: bool = True,
    ) -> None:
        super().__init__(reason)
        self.api = api  # its name and version, as far as they are known
        self.client_id = client_id
        self.is_logged = is_logged


class MalformedResponse(MalformedMessage):
    """Malformed bytes of a broker: the client closes the connection and retries elsewhere."""


class UnknownSchema(LookupError):
    """There is no such API key and version: answer UNSUPPORTED_VERSION."""


class UnencodableMessage(ValueError):
    """A value does not fit its field: a bug of the caller, never a peer's fault."""
