"""The consumer of Kafka before 0.9: its group is a set of znodes, and no broker coordinates it."""
