"""Error messages as they fit a reply. What they say is up to those who refuse."""

# Names in a message are the client's own, up to 32 KiB each; so is the room of a message.
MAX_MESSAGE_CHARACTERS = 4_000


def clip(message: str | None) -> str | None:
    if message is None or len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}..."
