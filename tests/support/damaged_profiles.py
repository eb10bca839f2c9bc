"""Profiles that are damaged in one place, and what a run of the command makes of them."""

from __future__ import annotations

import contextlib
import enum
import fnmatch
import json
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.deadline import deadline
from tests.support.drawn_slices import drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Profile
from timeline.cli.main import main

RUN = {"ranks": 1, "steps": 1}
MOST_SECONDS = 20.0
"""Most take a tenth of a second; one that waits for something takes forever."""
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs POSIX files")

TRACES = {
    "torch-text": "trace_view.json",
    "mindstudio": "msprof_2*.json",
    "mindspore-2.1": "msprof_0_1_1.json",
    "kineto": "*.pt.trace.json",
}
TABLES = {
    "kernel-details": "kernel_details.csv",
    "op-summary": "op_summary_*.csv",
    "mindspore-text": "output_timeline_data_0.txt",
}
DATABASES = {
    "torch-db": "ascend_pytorch_profiler_0.db",
    "msprof-sqlite": "ascend_task.db",
}
RAW = {
    "raw": "stars_soc.data.0.slice_1",
    "raw-hwts": "hwts.data.0.slice_1",
    "mindspore-raw": "hwts.log.data.*.slice_1",
}
VARIANTS = {
    "mindspore-2.6": "trace_view.json",
    "mindspore-2.6-tables": "kernel_details.csv",
    "mindspore-display": "timeline_display_0.json",
    "mindspore-display-1.5": "ascend_timeline_display_0.json",
    "mindformers": "msprof_2*.json",
    "mindformers-2.1": "msprof_0_1_1.json",
    "mindstudio-exported-twice": "msprof_20250109120100.json",
    "mindstudio-sliced": "msprof_slice_1_*.json",
    "kineto-2.2": "*.pt.trace.json",
    "kineto-alone": "*.pt.trace.json",
    "kineto-announced": "*.pt.trace.json",
    "summary-directory": "op_summary_0_1_1.csv",
    "mindspore-text-2.1": "output_timeline_data_0.txt",
    "mindspore-text-hccl": "output_timeline_data_0.txt",
    "msprof-sqlite-numbered": "ascend_task.db",
    "msprof-sqlite-launched": "ascend_task.db",
    "raw-v6": "stars_soc.data.0.slice_1",
    "raw-49-MHz": "stars_soc.data.0.slice_1",
}
"""Layouts that a reader above reads too; they get the faults that any file can have."""
MAIN_FILES = {**TRACES, **TABLES, **DATABASES, **RAW, **VARIANTS}
"""The file of each layout that holds device tasks."""


class Outcome(enum.Enum):
    """What a fault may come to."""

    KEPT = "kept"
    LOST = "lost"
    PART = "part"
    """What is drawn is a part of what was there."""
    REFUSED = "refused"


KEPT, LOST, PART, REFUSED = Outcome


def state_of(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """The kind, change time and content of everything below a directory."""
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        status = path.lstat()
        regular = stat.S_ISREG(status.st_mode)
        mode = stat.S_IMODE(status.st_mode)
        if regular and not mode & 0o400:
            path.chmod(0o600)
        content = path.read_bytes() if regular else b""
        if regular and not mode & 0o400:
            path.chmod(mode)
        found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, content)
    return found


@dataclass(frozen=True)
class Ran:
    """What one run of the command returned, said and wrote."""

    code: int
    out: str
    err: str
    output: Path

    @property
    def losses(self) -> list[str]:
        """The reasons of what was left out of the profile."""
        return [row["reason"] for row in self.omitted if row["loss"]]

    @property
    def omitted(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.out)["omitted"]
        return found

    def tasks(self) -> Counter[tuple[int, int]]:
        """Where the device tasks are, and how long, that the real trace processor finds."""
        return Counter((start, length) for start, length, _ in device_slices(self.output))


def device_slices(output: Path) -> list[tuple[int, int, str]]:
    processor = TraceProcessor.load(output.read_bytes())
    assert processor.import_errors() == []
    return [
        (one.start_ns, one.duration_ns, one.name)
        for one in drawn_slices(processor)
        if one.row[-1].startswith("Stream") or (len(one.row) > 1 and one.row[-2].startswith("Str"))
    ]


@dataclass(frozen=True)
class Export:
    """Runs the command on a profile, which must stay as it is."""

    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, profile: Path, *options: str) -> Ran:
        before = state_of(profile)
        output = self.directory / "out.pftrace"
        output.unlink(missing_ok=True)
        began = time.monotonic()
        options = (*options, *assigned(profile))
        arguments = [str(profile), "--kind", "detail", "--json", "-o", str(output), *options]
        with deadline(MOST_SECONDS):
            code = main(arguments)
        said = self.capsys.readouterr()
        assert time.monotonic() - began < MOST_SECONDS
        assert state_of(profile) == before
        assert "Traceback" not in said.err
        assert all(line.isprintable() for line in (said.out + said.err).splitlines())
        left = [path.name for path in self.directory.iterdir()]
        assert left == ([output.name] if code == 0 else [])
        return Ran(code, said.out, said.err, output)

    def refused(self, profile: Path, *options: str, names: str) -> Ran:
        """A run that has to fail, and to name a file."""
        ran = self(profile, *options)
        assert ran.code == 1, (ran.out, ran.err)
        assert ran.out == ""
        assert ran.err.startswith("tlexport: ")
        assert names in ran.err
        return ran


def assigned(profile: Path) -> tuple[str, ...]:
    """The rank of a trace that was not part of a distributed run."""
    (found, *_) = [*profile.glob("*.pt.trace.json"), profile]
    alone = found.is_file() and b"distributedInfo" not in found.read_bytes()
    return ("--assign-rank", f"{found}=0") if alone and found.stat().st_size else ()


@dataclass(frozen=True)
class Spot:
    """The file of a profile that a case damages, and the device slices that were there."""

    layout: str
    root: Path
    path: Path
    slices: list[tuple[int, int, str]]

    @property
    def tasks(self) -> Counter[tuple[int, int]]:
        return Counter((start, length) for start, length, _ in self.slices)


def main_file(profile: Profile, layout: str) -> Path:
    found = [
        path
        for path in profile.path.rglob("*")
        if fnmatch.fnmatch(path.name, MAIN_FILES[layout]) and "_tx_" not in path.name
    ]
    (path,) = [one for one in found if not one.name.endswith(".done")]
    return path


def check(
    export: Export, spot: Spot, outcome: Outcome, reason: str = "", gone: Sequence[Any] = ()
) -> None:
    """Prove that a damaged profile comes to what it should, with --strict and without."""
    if outcome is REFUSED:
        export.refused(spot.root, names=reason or spot.path.name)
        return
    ran = export(spot.root)
    assert ran.code == 0, ran.err
    found = ran.tasks()
    if outcome is PART:
        assert not found - spot.tasks
        assert found
    else:
        assert found == spot.tasks - Counter(gone)
    if reason:
        reasons = [row["reason"] for row in ran.omitted]
        assert any(reason in found for found in reasons), reasons
    if ran.losses:
        assert export(spot.root, "--strict").code == 4
    else:
        assert outcome is KEPT


Event = dict[str, Any]


@dataclass(frozen=True)
class Trace:
    """A trace as text, and the event of one device task in it."""

    text: str
    victim: Event
    place: tuple[int, int]
    """Start and length of its slice."""

    def with_victim(self, made: bytes | Event) -> bytes:
        before, _, after = self.text.partition(json.dumps(self.victim))
        middle = made if isinstance(made, bytes) else json.dumps(made).encode()
        return before.encode() + middle + after.encode()


def trace_of(spot: Spot) -> Trace:
    """The trace, with the task in its middle that is the only one of its length."""
    document = json.loads(spot.path.read_bytes())
    events = document["traceEvents"] if isinstance(document, dict) else document
    spans = [event for event in events if event.get("ph") == "X"]
    of_length: dict[int, list[Event]] = {}
    for event in spans:
        of_length.setdefault(round(float(event["dur"]) * 1000), []).append(event)
    lengths = Counter(length for _, length, _ in spot.slices)
    alone = [
        (start, length, of_length[length][0])
        for start, length, _ in sorted(spot.slices)
        if lengths[length] == 1 and len(of_length.get(length, ())) == 1
    ]
    start, length, victim = alone[len(alone) // 2]
    return Trace(json.dumps(document), victim, (start, length))


@contextlib.contextmanager
def as_nobody(directory: Path) -> Iterator[None]:
    """Without the rights of root, which may read everything; a directory stays writable."""
    if os.geteuid() != 0:
        yield
        return
    opened = [parent for parent in directory.parents if not parent.stat().st_mode & 0o001]
    modes = [parent.stat().st_mode for parent in opened]
    for parent in opened:
        parent.chmod(parent.stat().st_mode | 0o711)
    directory.chmod(0o777)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
        for parent, mode in zip(opened, modes, strict=True):
            parent.chmod(mode)
