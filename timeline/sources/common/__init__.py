"""Helpers shared by several formats: clocks, counters, identities, overlap, losses, decimals."""
