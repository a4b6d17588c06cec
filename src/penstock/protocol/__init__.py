"""Encodes and decodes record batches, records and messages. No files, no sockets."""
