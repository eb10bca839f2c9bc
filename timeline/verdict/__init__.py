"""The verdict: what to fix first, how much that wins, and where the time goes."""
