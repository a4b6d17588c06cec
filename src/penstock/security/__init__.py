"""Principals and authorization."""
