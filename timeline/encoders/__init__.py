"""Trace formats and the writing of files."""
