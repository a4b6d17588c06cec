"""Apache Kafka and Penstock under the same clients, in turns, on the same machine."""
