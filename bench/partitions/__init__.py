"""One broker with 10,000 partitions beside the same broker with 10."""
