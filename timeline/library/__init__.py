"""What can be asked of an open profile in Python: a module of tables for each topic."""
