"""Admin APIs: topics, configs, reassignments, log directories."""
