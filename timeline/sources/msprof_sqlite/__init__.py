"""SQLite databases into which msprof parses a capture before it exports it."""

TASKS = "ascend_task.db"
"""Database of device tasks, the only one that a capture must have."""
