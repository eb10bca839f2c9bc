"""Reads the small tables that a profiler leaves beside timelines, a module for each topic."""
