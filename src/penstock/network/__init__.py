"""Listeners and connections: frames in, ordered responses out. Knows no API."""
