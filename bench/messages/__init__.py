"""Messages on the wire, side by side with kio's own reader and writer."""
