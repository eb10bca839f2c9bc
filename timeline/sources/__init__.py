"""Readers, which turn the files of a profile into records; no other package opens a profile."""
