"""Gains: how much shorter a run becomes if a part of it is mended, by replaying it."""
