"""Helpers that formats share: clocks, counters, identities, overlap, losses, decimals."""
