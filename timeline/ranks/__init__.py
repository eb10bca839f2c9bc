"""Reading and drawing many ranks: the work on each, and the processes that do it."""
