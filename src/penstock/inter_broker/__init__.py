"""What brokers send each other: controller requests, AlterPartition, markers, verification."""
