"""The Perfetto UI, opened on a file that was exported."""

from __future__ import annotations

from timeline.viewer.local_ui import installed_pages as installed_pages
from timeline.viewer.opening import show as show
