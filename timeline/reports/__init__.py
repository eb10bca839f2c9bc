"""Reports as text, JSON and pages; what they show is worked out elsewhere."""
