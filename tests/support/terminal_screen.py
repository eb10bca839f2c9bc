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
import time
from collections.abc import Mapping, Sequence

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
    code, pieces = watch_on_terminal(arguments, columns, environment, start)
    return code, b"".join(piece for _, piece in pieces).decode().replace("\r\n", "\n")


def watch_on_terminal(
    arguments: Sequence[str],
    columns: int,
    environment: Mapping[str, str] | None = None,
    start: Sequence[str] = ("-m", "timeline"),
) -> tuple[int, list[tuple[float, bytes]]]:
    """Run the command as `run_on_terminal` does: its exit code, and when it wrote what."""
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
    pieces = []
    while True:
        try:
            piece = os.read(screen, 65536)
        except OSError:  # Linux: the other end is closed
            break
        if not piece:
            break
        pieces.append((time.monotonic(), piece))
    os.close(screen)
    return running.wait(), pieces


def plain(text: str) -> str:
    """The text without colours and other styles."""
    return _STYLE.sub("", text)
