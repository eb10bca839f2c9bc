"""The Python interface of an open profile, which returns figures of selections as tables."""
