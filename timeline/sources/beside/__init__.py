"""Files beside a capture: counters, host events, small tables, and the profiler's own sums."""
