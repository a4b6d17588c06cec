"""Record batches to Arrow and back, in bulk: the compiled way, the plain way, and readers that make
an object of each record."""
