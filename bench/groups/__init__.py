"""Consumer groups of Apache Kafka and Penstock under the same clients, in turns."""
