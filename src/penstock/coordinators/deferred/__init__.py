"""Messages that wait, each delivered to its target partition once, when due: the decisions. No
broker serves them yet."""
