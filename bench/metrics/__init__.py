"""What metrics cost: the counters of a request, and a scrape of many partitions."""
