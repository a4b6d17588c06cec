"""APIs of consumer groups and committed offsets."""
