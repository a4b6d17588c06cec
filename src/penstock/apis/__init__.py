"""One file per Kafka API: decode, authorize, call, encode. `registry` lists what is served."""
