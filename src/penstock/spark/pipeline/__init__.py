"""Pipelines: one file says what is read, how it is changed and where it goes; Spark does it.

Reading and checking a file (`document`, `reading`, `spec`, `checks`) needs no Spark. `build`,
`values`, `writing` and `run` import PySpark: whoever needs them imports them late.
"""
