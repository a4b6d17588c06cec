"""The type of bytes that are sent and received. Nothing else."""

Buffer = bytes | bytearray | memoryview
