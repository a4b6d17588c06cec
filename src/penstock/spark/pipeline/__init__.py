"""Pipelines: one file declares sources, SQL and sinks; Spark runs it.

Reading and checking a file (`document`, `reading`, `spec`, `checks`) needs no Spark. `build`,
`values`, `writing` and `run` import PySpark, so callers import them lazily.
"""
