"""Reads the small tables that a profiler leaves beside timelines: each file is a declaration."""
