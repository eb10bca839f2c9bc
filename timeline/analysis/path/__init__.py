"""What determined when a step ended: the critical path, what could be won, and estimates of it."""
