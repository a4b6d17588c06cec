"""APIs of administrators: topics, configs, reassignments, log directories."""
