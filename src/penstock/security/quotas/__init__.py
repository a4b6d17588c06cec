"""Client quotas: which one applies, how much was used of it, and how long to wait."""
