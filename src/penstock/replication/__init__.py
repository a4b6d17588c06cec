"""Partitions of this broker: leading, the high watermark, and who waits for it."""
