"""Spark sessions: building one, its workers' Python, faster JVM starts, readable errors."""
