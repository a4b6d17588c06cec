"""Handlers of the private requests between brokers; clients never see these keys."""
