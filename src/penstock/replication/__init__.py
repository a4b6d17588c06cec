"""Partitions of this broker: leading and following, the ISR, the high watermark."""
