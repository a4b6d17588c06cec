"""Spark sessions: how one is built, what its workers need, and faster JVM starts."""
