"""Opening of exported files in the Perfetto UI."""

from __future__ import annotations

from timeline.viewer.opening import show as show
from timeline.viewer.serving import installed_pages as installed_pages
