"""Whose work a device does: operators, kernels, what launched them, and why a rank takes longer."""
