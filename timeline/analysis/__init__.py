"""Pure functions from columns to intervals and numbers."""
