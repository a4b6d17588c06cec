"""The cost of a timer on the timing wheel, compared with `heapq` and lazy cancellation."""
