"""All that a command writes to a terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence

__all__ = ["Shown", "plain", "run_on_terminal"]

_STYLE = re.compile(r"\x1b\[[0-9;]*m")

Shown = tuple[int, str]
"""Exit code, and what was written to the terminal."""


def run_on_terminal(
    arguments: Sequence[str],
    columns: int,
    environment: Mapping[str, str] | None = None,
    start: Sequence[str] = ("-m", "timeline"),
) -> Shown:
    """Run the command with stdout and stderr on a terminal of some width."""
    screen, others = pty.openpty()
    fcntl.ioctl(others, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    unwanted = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"}
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    running = subprocess.Popen(
        [sys.executable, *start, *arguments],
        stdin=others,
        stdout=others,
        stderr=others,
        env=inherited | {"TERM": "xterm-256color", "PYTHONUTF8": "1"} | dict(environment or {}),
    )
    os.close(others)
    shown = b""
    while True:
        try:
            piece = os.read(screen, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not piece:
            break
        shown += piece
    os.close(screen)
    return running.wait(), shown.decode().replace("\r\n", "\n")


def plain(text: str) -> str:
    """The text without colours and other styles."""
    return _STYLE.sub("", text)
