"""What the profiler of MindSpore 0.7 to 2.2 wrote: raw files, text outputs and displays."""
