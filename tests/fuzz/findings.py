"""Faults that fuzzing found: the smallest input of each kind, kept in a directory."""

from __future__ import annotations

import hashlib
import traceback
from dataclasses import dataclass
from pathlib import Path

FRAMES_SHOWN = 6
PACKAGE = "/timeline/"


@dataclass(frozen=True)
class Fault:
    """What went wrong: the kind tells faults apart, `told` is the end of the traceback."""

    kind: str
    told: str

    @property
    def name(self) -> str:
        """A short name for files."""
        return hashlib.sha256(self.kind.encode()).hexdigest()[:10]


def fault_of(error: BaseException) -> Fault:
    """The kind of an error: its type, and the last two places of the package it went through."""
    frames = traceback.extract_tb(error.__traceback__)
    of_package = [frame for frame in frames if PACKAGE in frame.filename]
    where = " > ".join(
        f"{frame.filename.rpartition(PACKAGE)[2]}:{frame.lineno} {frame.name}"
        for frame in of_package[-2:]
    )
    said = str(error) if type(error).__name__ == "BrokenPromise" else ""
    shown = "".join(traceback.format_list(frames[-FRAMES_SHOWN:]))
    return Fault(
        " ".join(part for part in (type(error).__name__, where, said) if part),
        f"{shown}{type(error).__name__}: {str(error)[:400]}",
    )


@dataclass(frozen=True)
class Findings:
    """A directory with an input for each kind of fault, the smallest seen, and what it does."""

    directory: Path
    suffix: str

    def add(self, data: bytes, fault: Fault) -> None:
        """Keep the input if it is the first or the smallest of its kind."""
        path = self.directory / f"{fault.name}{self.suffix}"
        if not path.is_file() or path.stat().st_size > len(data):
            self.directory.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.with_name(f"{fault.name}.txt").write_text(f"{fault.kind}\n\n{fault.told}\n")

    def inputs(self) -> list[Path]:
        """The inputs, by name."""
        if not self.directory.is_dir():
            return []
        return sorted(path for path in self.directory.iterdir() if path.suffix != ".txt")

    def kind(self, path: Path) -> str:
        """The fault that an input shows."""
        told = path.with_name(f"{path.stem}.txt")
        return told.read_text().partition("\n")[0] if told.is_file() else "the process died"
