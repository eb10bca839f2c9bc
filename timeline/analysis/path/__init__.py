"""Critical path of steps: the work that determined when each step ended."""
