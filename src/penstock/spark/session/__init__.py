"""Spark sessions: `session()` builds one; also what its workers need, and faster JVM starts."""

from penstock.spark.session.builder import LOW_LATENCY, session

__all__ = ["LOW_LATENCY", "session"]
