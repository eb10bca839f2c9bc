"""Reports as self-contained HTML pages."""

from timeline.reports.html.comparison_page import render_comparison_page as render_comparison_page
from timeline.reports.html.export_page import render_export_page as render_export_page
