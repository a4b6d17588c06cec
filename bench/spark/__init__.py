"""Penstock's Spark connector beside Spark's own Kafka connector, on both brokers, in turns."""
