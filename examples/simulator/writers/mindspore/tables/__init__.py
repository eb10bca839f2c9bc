"""The small tables that MindSpore leaves beside a timeline, a module for each topic."""
