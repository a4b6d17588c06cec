"""Group coordinator: consumer groups and committed offsets over `__consumer_offsets`."""
