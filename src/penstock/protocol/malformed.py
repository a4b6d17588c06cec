"""What is raised for bytes that are no message: one family, one `except` guards a socket."""


class MalformedMessage(ValueError):
    """These bytes are not the message they claim to be; the connection cannot be trusted on."""


class MalformedRequest(MalformedMessage):
    """A client sent it: its connection is closed, nobody else's."""


class MalformedResponse(MalformedMessage):
    """A broker sent it: the client gives up the connection and asks elsewhere."""


class UnknownSchema(LookupError):
    """No such (api, version) exists among the schemas: answer UNSUPPORTED_VERSION."""


class UnencodableMessage(ValueError):
    """A value does not fit its field: a broken caller, never a peer's fault."""
