"""The penstock command: thin commands over the packages below."""
