"""Values that every package shares: ids, offsets, epochs. Standard library only, no I/O."""
