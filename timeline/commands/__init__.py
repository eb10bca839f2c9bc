"""What each command does, in order: export, compare, list."""
