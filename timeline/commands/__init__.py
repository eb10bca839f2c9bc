"""The steps of the commands export, compare, list, verdict and show."""
