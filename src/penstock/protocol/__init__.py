"""Bytes and values: record batches, records, compression. No files, no sockets."""
