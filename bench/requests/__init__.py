"""Small requests: one 100-byte produce in flight per connection, on few and on many connections."""
