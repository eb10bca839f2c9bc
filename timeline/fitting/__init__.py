"""Files that keep the size limit by merging, leaving out or splitting, and their costs."""
