"""Transactions of Apache Kafka and of Penstock, under the same clients, in turns."""
