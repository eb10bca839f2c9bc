"""Readers: the only part that opens a profile; they turn its files into records."""
