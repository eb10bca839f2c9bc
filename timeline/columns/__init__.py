"""Columns of equal length: made, interned, numbered, grouped, nested and kept out of memory."""
