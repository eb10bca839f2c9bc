"""Profiles of MindSpore 0.x to 2.2: text files, and raw files of 0.x and 1.x."""
