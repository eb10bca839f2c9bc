"""The command line: parsing, completion and printing."""
