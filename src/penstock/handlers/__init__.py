"""One file per Kafka API: decode, authorise, call, encode."""
