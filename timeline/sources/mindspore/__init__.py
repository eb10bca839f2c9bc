"""Output of MindSpore 0.x to 2.2: text files, and raw data of 0.x and 1.x."""
