"""Consumer groups and their committed offsets: state machines over a compacted log."""
