"""Bodies of the private requests between brokers: values to bytes and back
(docs/inter_broker.md)."""
