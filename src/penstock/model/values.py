"""Creates named tuples on the hot path."""

# `new_tuple(Appended, (...))` takes a third of the time of `Appended(...)`. Use it only for tuples
# that are created for every batch (bench/produce_200).
new_tuple = tuple.__new__
