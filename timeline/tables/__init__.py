"""Tables of the facts of ranks, for `--json`, reports and the library."""
