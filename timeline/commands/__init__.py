"""The commands: export, compare, list, verdict and show, step by step."""
