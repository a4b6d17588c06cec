"""File slices to a client by copy, mmap and sendfile: the network server alone, and a broker."""
