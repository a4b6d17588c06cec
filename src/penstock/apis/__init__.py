"""One file per Kafka API: decode, authorise, call, encode. `registry` lists what is served."""
