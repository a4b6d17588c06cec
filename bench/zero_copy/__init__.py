"""File slices to a client by copy, mmap and sendfile, through the real server."""
