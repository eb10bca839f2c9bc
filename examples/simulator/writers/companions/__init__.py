"""Files that lie beside the records of a capture: memory, host, and the profiler's own sums."""
