"""A broker with 10,000 partitions compared with one with 10."""
