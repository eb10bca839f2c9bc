"""Profiles whose records are trace events in JSON, and what those layouts share."""
