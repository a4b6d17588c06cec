"""Who leads what: topics, elections and settings, kept in the coordination tree."""
