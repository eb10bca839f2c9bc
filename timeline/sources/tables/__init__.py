"""Captures of which only exported tables remain: of kernels, device tasks, steps or sums."""
