"""Requests that are filled to their limits with the smallest elements, and what they cost."""
