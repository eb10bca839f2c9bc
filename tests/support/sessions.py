"""The processes of a session, as Linux tells them."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class SessionProcess:
    """A process of a session: its parent, its CPU time, and its command line."""

    pid: int
    parent: int
    cpu_seconds: float
    command: str


def session_of(leader: int) -> list[SessionProcess]:
    """The processes of a session that still run."""
    found = []
    for directory in PROC.iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                state, parent, session = fields[0], int(fields[1]), int(fields[3])
                ticks = int(fields[11]) + int(fields[12])
                if session == leader and state != "Z":
                    command = (directory / "cmdline").read_text().replace("\0", " ")
                    seconds = ticks / os.sysconf("SC_CLK_TCK")
                    found.append(SessionProcess(int(directory.name), parent, seconds, command))
    return found
