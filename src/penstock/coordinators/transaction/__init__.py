"""Transaction coordinator: state machines over the topic `__transaction_state`."""
