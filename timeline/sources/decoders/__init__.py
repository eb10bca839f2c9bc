"""Decoders of CSV, JSON and SQLite into columns, independent of any profiler's format."""
