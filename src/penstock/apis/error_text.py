"""Truncates error messages to the length that a response carries."""

# A message may quote names of the client, up to 32 KiB each, which is also its own maximum.
MAX_MESSAGE_CHARACTERS = 4_000


def clip(message: str | None) -> str | None:
    if message is None or len(message) <= MAX_MESSAGE_CHARACTERS:
        return message
    return f"{message[:MAX_MESSAGE_CHARACTERS]}..."
