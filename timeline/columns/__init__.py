"""Columns: tables of them, what is computed from them, and files for those memory cannot hold."""
