"""Fuzzing of every reader: random bytes are read or refused, and nothing else happens."""
