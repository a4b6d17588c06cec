"""Error messages cut to the length that a response carries."""

# A message may contain the client's own names, up to 32 KiB each, as long as it may be itself.
MAX_MESSAGE_CHARACTERS = 4_000


def clip(message: str | None) -> str | None:
    if message is None or len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}..."
