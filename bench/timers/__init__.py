"""What a timer costs on the timing wheel, against `heapq` with lazy cancellation."""
