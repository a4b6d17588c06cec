"""Group and transaction coordinators: state machines over compacted internal topics."""
