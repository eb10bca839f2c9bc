"""Drawing of a timeline as tracks, slices, counters and arrows, independent of file formats."""
