"""One writer for each format that tlexport reads, named after its folder in `timeline/sources/`."""
