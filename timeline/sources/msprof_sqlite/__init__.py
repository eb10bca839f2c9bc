"""The databases that msprof parses a capture into, before it exports any."""

TASKS = "ascend_task.db"
"""The one database without which there is nothing to read."""
