"""Access to files of a profile: plain, compressed, in archives and on other file systems."""
