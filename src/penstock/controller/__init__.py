"""The controller: leader elections, topics, reassignments and configs, kept as znodes."""
