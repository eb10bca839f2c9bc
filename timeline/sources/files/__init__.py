"""Files of a profile as streams, whether they are packed or not."""
