"""How clients log in: TLS and SASL, configured by librdkafka's and Java's names."""
