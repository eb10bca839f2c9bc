"""Companion files of a capture: counters, host events, small tables, and the profiler's sums."""
