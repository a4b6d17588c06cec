"""The sink's rows exactly once: tasks prepare transactions, the driver decides them all with one
record. docs/decisions/0022-exactly-once-sink.md says why it is built like this.
"""
