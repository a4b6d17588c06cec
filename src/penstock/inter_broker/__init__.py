"""Requests between brokers: controller requests, AlterPartition, markers, verification."""
