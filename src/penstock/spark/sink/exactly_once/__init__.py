"""The sink's rows exactly once, by two-phase commit: every task prepares a transaction, then the
driver decides all of them with one record. docs/decisions/0022-exactly-once-sink.md says why.
"""
