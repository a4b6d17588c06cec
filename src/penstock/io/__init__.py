"""All file operations of the broker, through the interface `Disk`."""
