"""Encoding and decoding of messages, compared with kio's own reader and writer."""
