"""Listeners and connections: frames in, ordered replies out. Knows no API."""
