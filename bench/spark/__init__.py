"""Penstock's Spark connector and Spark's own Kafka connector, on both brokers, alternating."""
