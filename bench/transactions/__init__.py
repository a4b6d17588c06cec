"""Transactions of Apache Kafka and Penstock with the same clients, alternating."""
