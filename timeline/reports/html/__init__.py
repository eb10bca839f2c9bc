"""Turns the report of an export or a comparison into a page to look at, and into a picture."""

from timeline.reports.html.comparison_page import comparison_page
from timeline.reports.html.page import page
from timeline.reports.html.still import still

__all__ = ["comparison_page", "page", "still"]
