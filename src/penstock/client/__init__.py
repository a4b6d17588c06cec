"""An asynchronous client for raw batches, and a typed producer and consumer on librdkafka."""
