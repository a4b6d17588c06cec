"""The cost of a partition in a Produce request of 200, compared with the possible minimum."""
