"""The embedded metadata store of a single broker: a durable znode tree in its own process."""
