"""Values that every room shares: ids, offsets, epochs. Standard library only, no I/O."""
