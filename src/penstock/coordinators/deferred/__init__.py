"""Messages that wait, each delivered to its target partition once, when due."""
