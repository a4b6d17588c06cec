"""TLS against plaintext against Kafka with TLS, in the same run."""
