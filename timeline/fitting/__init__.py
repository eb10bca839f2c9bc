"""Files that keep the size limit: what is left out, merged or split, and what that costs."""
