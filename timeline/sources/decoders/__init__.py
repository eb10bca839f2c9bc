"""CSV, JSON and SQLite as columns, whatever they hold."""
