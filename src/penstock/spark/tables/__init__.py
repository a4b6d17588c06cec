"""Topics as tables: Spark tasks keep a topic's history in an open table format.

The table itself records its offsets: files and offsets are committed together, so that there is no
separate checkpoint that could disagree. Decisions (`spec`, `evolution`, `plan`, `compaction`,
`history_plan`) are separate from effects; `store` hides the differences between Delta, Iceberg and
plain Parquet.
"""
