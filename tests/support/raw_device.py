"""A raw capture of one device whose slices a test writes."""

from __future__ import annotations

from pathlib import Path

from simulator.writers.cann_raw import RawTask, counter_of, stars_record, track_record
from tests.support.profile_shelf import Profile
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.records.not_given import NO_CONTEXT
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest, Source


def read(source: Source) -> Records:
    return source.read(ReadRequest(DETAIL_LAYERS))


def only_source(path: Path) -> Source:
    (source,) = discover(path).sources
    return source


class Device:
    """A capture of one rank whose slices a test writes."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.directory = profile.captures[0] / "device_0"
        self.data = self.directory / "data"
        counter = counter_of(profile.run, profile.run.rank(0), "100")
        self.zero_ns, self.zero = counter.host_ns, counter.value

    def source(self) -> Source:
        return only_source(self.profile.path)

    def read(self) -> Records:
        return drop_invalid_rows(read(self.source()))

    def write(self, log: str, *slices: bytes, first: int = 0) -> None:
        """Replace all slices of a log."""
        for path in self.data.glob(f"{log}.data.*"):
            path.unlink()
        for number, data in enumerate(slices, first):
            (self.data / f"{log}.data.0.slice_{number}").write_bytes(data)

    def task(self, number: int, at: int = 1000, length: int = 10, **changes: object) -> bytes:
        """Start and end of a task in `stars_soc.data`; times in ticks of 10 ns."""
        fields = {"stream": 2, "task": number, "context": NO_CONTEXT, "kind": "AI_CORE"} | changes
        task = RawTask(**fields, start_ns=0, end_ns=0)  # type: ignore[arg-type]
        ends = ((False, at), (True, at + length))
        return b"".join(stars_record(self.zero + ticks, is_end, task) for is_end, ticks in ends)

    def tag(self, tag: int, at: int, graph: int = 1, index: int = 1, stream: int = 2) -> bytes:
        return track_record(self.zero + at, index, graph, stream, tag)

    def ns(self, ticks: int) -> int:
        return self.zero_ns + 10 * ticks
