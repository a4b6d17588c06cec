"""What a shorter replica.lag.time.max.ms costs, and what it saves after a link is cut."""
