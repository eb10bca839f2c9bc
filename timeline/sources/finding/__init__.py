"""The search for captures: finds one source per rank of the newest run below a path."""
