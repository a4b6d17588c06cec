"""Slices of a file to a client by copy, by memory map and by sendfile, through the real server."""
