"""Topics as tables: the history of a topic kept in an open table format by Spark's tasks.

A table knows itself how far it has come: files and offsets enter it in one commit, so that there is
no checkpoint beside it that could tell another story. Deciding (`spec`, `evolution`, `plan`,
`compaction`, `history`) is apart from doing; what Delta, Iceberg and plain Parquet differ in is
behind `store`.
"""
