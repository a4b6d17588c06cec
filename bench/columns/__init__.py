"""Record batches to Arrow and back: the compiled path, the plain path, and readers that create an
object per record."""
