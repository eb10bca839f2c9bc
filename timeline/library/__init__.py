"""The profile in Python: open, with the figures of selections as tables."""
