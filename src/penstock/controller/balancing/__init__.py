"""Plans and runs reassignments that even out brokers: one planner for command and controller."""
