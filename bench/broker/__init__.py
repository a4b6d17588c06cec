"""Apache Kafka and Penstock with the same clients, alternating, on the same machine."""
