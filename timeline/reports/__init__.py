"""Reports as text, JSON and HTML pages, of results that are computed elsewhere."""
