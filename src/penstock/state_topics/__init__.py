"""A coordinator's state, kept in a compacted internal topic: what groups and transactions share."""
