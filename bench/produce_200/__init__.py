"""What a partition costs in a Produce request of 200, next to the least that it could cost."""
