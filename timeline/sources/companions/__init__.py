"""Files beside a capture: more counters, host events, and what the profiler itself measured."""
