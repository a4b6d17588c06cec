"""Shipped test parts: a simulated disk, and a model engine."""
