"""Turns the report of an export into a page to look at, and into a still picture."""

from timeline.report_page.drafts import drafts
from timeline.report_page.page import page
from timeline.report_page.still import still

__all__ = ["drafts", "page", "still"]
