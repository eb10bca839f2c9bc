"""Traces of PyTorch's own profiler, of GPUs."""
