"""The seam to the kernel: every file operation of the broker goes through `Disk`."""
