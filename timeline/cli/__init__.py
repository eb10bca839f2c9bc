"""The command line: its parser, its completion, and what it prints."""
