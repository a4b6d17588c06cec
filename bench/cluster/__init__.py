"""Clusters of three brokers, Apache Kafka's and Penstock's, under the same clients, in turns."""
