"""Traces of PyTorch's own profiler (Kineto), mostly of GPUs."""
