"""Timelines that are exported as Chrome-trace JSON."""
