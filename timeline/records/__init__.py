"""Columns of one rank's profile: what sources write and everything above reads."""
