"""The Perfetto UI, opened on a file that was exported."""

from __future__ import annotations

from timeline.viewer.opening import show as show
from timeline.viewer.serving import installed_pages as installed_pages
