"""Turns a stream into what text on it must fit: columns, encoding, and whether people look on."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TextIO

from rich.console import detect_legacy_windows

from timeline.printable import encoded

__all__ = ["LEAST_WIDTH", "ONE_LINE_WIDTH", "PIPE_WIDTH", "Page"]

PIPE_WIDTH = 100
LEAST_WIDTH = 60
"""A narrower terminal wraps lines, so that no number is cut."""
ONE_LINE_WIDTH = 72
"""Below this width a share stands below its time."""


@dataclass(frozen=True)
class Page:
    """What text is shown on; `terminal` is whether it is one, and no pipe or file."""

    width: int
    encoding: str
    terminal: bool

    @classmethod
    def of(cls, stream: TextIO) -> Page:
        """The page that a stream writes on; a pipe is always as wide."""
        terminal = stream.isatty() and not (os.name == "nt" and detect_legacy_windows())
        width = shutil.get_terminal_size().columns if terminal else PIPE_WIDTH
        return cls(max(width, LEAST_WIDTH), stream.encoding or "utf-8", terminal)

    def holds(self, text: str) -> bool:
        """Whether the encoding has these characters."""
        return encoded(text, self.encoding) == text

    @property
    def narrow(self) -> bool:
        """Whether a line has no room for times beside their shares."""
        return self.width < ONE_LINE_WIDTH
