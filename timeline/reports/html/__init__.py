"""Reports as pages that need nothing beside them, and as a picture."""

from timeline.reports.html.comparison_page import render_comparison_page as render_comparison_page
from timeline.reports.html.comparison_png import render_comparison_png as render_comparison_png
from timeline.reports.html.export_page import render_export_page as render_export_page
from timeline.reports.html.png import render_png as render_png
