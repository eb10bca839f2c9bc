"""The databases that msprof parses a capture into, before it exports any."""
