"""What checking every record costs produce throughput: see `python -m bench.validation`."""
