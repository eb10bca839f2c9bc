"""Turns the report of an export or a comparison into a page to look at, and into a picture."""

from timeline.report_page.comparison_page import comparison_page
from timeline.report_page.page import page
from timeline.report_page.still import still

__all__ = ["comparison_page", "page", "still"]
