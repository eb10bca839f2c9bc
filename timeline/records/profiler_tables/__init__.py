"""The small tables that a profiler leaves beside the timeline of a rank, as they are read."""
