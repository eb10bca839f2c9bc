"""What formats share: which task types compute, and which move data."""
