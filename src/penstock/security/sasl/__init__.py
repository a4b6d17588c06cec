"""SASL on the server's side: who logs in, by which mechanism, and for how long."""
