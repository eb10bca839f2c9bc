"""Tables of an open profile for Python: a module of methods for each topic."""
