"""Why a device idles: its gaps, what launched what, and what the host did meanwhile."""
