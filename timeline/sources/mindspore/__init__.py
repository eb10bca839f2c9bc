"""What MindSpore 0.x to 2.2 leaves: text outputs, and raw data of 0.x and 1.x."""
