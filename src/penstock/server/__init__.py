"""Builds a broker from its packages, starts and stops it in order."""
