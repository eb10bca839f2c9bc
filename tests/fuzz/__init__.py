"""Turns random bytes into evidence that readers read them or refuse them, and do nothing else."""
