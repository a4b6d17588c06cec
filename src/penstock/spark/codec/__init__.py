"""Record batches to Arrow columns and back, with numba kernels for bulk data; Avro; DDL."""
