"""Idle time of a device: its gaps, the launches that end them, and the host calls meanwhile."""
