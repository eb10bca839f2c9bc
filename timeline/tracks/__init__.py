"""The drawing: groups, tracks, slices, counters and arrows, independent of file formats."""
