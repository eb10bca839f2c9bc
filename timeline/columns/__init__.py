"""Columns: tables, computations on them, and files for columns that exceed memory."""
