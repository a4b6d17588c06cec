"""A small asynchronous client for raw batches, and typed faces on librdkafka."""
