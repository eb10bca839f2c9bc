"""A format of a few dozen lines, as a newcomer would add one: a file of tasks for each rank.

A line is `START LENGTH NAME`, in nanoseconds of wall time. A folder in `timeline/sources/` would
hold the source in `source.py`, and all the rest in `format.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from timeline.columns.strings import StringPool
from timeline.records.clock import Clock
from timeline.records.not_given import NO_GRAPH
from timeline.records.tables import Records, Steps, Tasks
from timeline.sources.capture import Capture, CaptureFile, Claim, Evidence, Folder, Format, Root
from timeline.sources.common.identity import make_claim
from timeline.sources.files.opened import read_whole_file
from timeline.sources.source import Identity, ReadRequest, Source

_NAME = re.compile(r"rank(\d{1,9})\.toy")


@dataclass(frozen=True)
class ToySource:
    """One file of tasks."""

    identity: Identity
    clock: Clock
    path: Path

    @property
    def layout(self) -> str:
        """The name of the format."""
        return TOY.name

    @property
    def files(self) -> tuple[Path, ...]:
        """The file."""
        return (self.path,)

    def read(self, wanted: ReadRequest) -> Records:
        """Read the tasks, and one step from the first to the last."""
        strings = StringPool()
        lines = [line.split() for line in read_whole_file(self.path).decode().splitlines()]
        starts = [int(start) for start, _, _ in lines]
        ends = [int(start) + int(length) for start, length, _ in lines]
        columns = {
            "start_ns": starts,
            "end_ns": ends,
            "name": [strings.code(name) for *_, name in lines],
            "compute": [True] * len(lines),
        }
        step = {
            "start_ns": [min(starts)],
            "end_ns": [max(ends)],
            "graph": [NO_GRAPH],
            "iteration": [1],
        }
        return Records(
            self.identity.rank,
            strings,
            tasks=Tasks.of(len(lines), columns),
            steps=Steps.of(1, step),
            hardware="Toy Hardware",
        )


def _recognise(folder: Folder) -> list[Capture]:
    paths = [folder.path / name for name in folder.names if _NAME.fullmatch(name)]
    return [Capture(TOY, path, path) for path in paths]


def _recognise_file(file: CaptureFile) -> list[Capture]:
    return [Capture(TOY, file.path, file.path)] if _NAME.fullmatch(file.name) else []


def _identify(capture: Capture, _root: Root) -> list[Claim]:
    match = _NAME.fullmatch(capture.content.name)
    assert match is not None
    return [make_claim(capture, [Evidence(int(match[1]), f"file name {match[0]}")])]


def _read_with(claim: Claim, identity: Identity) -> Source:
    return ToySource(identity, claim.clock, claim.capture.content)


TOY = Format(
    name="toy",
    recognise=_recognise,
    recognise_file=_recognise_file,
    identify=_identify,
    read_with=_read_with,
)
