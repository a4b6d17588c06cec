"""The penstock command: thin commands over the rooms below."""
