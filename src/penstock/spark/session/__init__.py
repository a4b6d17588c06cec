"""Spark sessions: `session()` builds one; also what its workers need, and faster JVM starts."""

from penstock.spark.session.builder import LOW_LATENCY, session
from penstock.spark.session.default_save_mode import accept_default_mode

__all__ = ["LOW_LATENCY", "accept_default_mode", "session"]
