"""What is drawn: groups, tracks, slices, counters and arrows, before any format."""
