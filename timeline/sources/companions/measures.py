"""Adds what the profiler itself measured of a capture, from the files beside it, to its records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.tables import Omission, Records
from timeline.records.vendor import VendorFigures, VendorLinks
from timeline.sources.common.losses import LossLog, unreadable_file
from timeline.sources.companions.vendor_communication import (
    MeasuredOps,
    read_link_file,
    read_link_table,
    read_op_file,
    read_op_table,
    with_moved_bytes,
)
from timeline.sources.companions.vendor_sums import (
    DATABASE_NS,
    STEP_SUM_NS,
    read_operator_sums,
    read_overlap_events,
    read_step_sums,
    read_step_table,
    step_figures,
)

__all__ = ["with_measures"]


def with_measures(
    records: Records, files: Mapping[str, tuple[Path, ...]], device: int | None
) -> Records:
    """Records with the figures and links of the profiler, and with what communication ops moved.

    A file that cannot be read at all is left out and counted.

    Args:
        files: by plain name without a stamp.
        device: the one whose rows are wanted; None is all.
    """
    reading = _Reading(records, device)
    for name, paths in files.items():
        try:
            _READERS[name](reading, paths)
        except SourceError as error:
            reading.omissions.append(unreadable_file(error, records.rank))
    damaged = (lost for log in reading.logs for lost in log.omissions(records.rank))
    return replace(
        reading.records,
        vendor=VendorFigures.concat(reading.figures),
        vendor_links=VendorLinks.concat(reading.links),
        omissions=(*reading.records.omissions, *reading.omissions, *damaged),
    )


class _Reading:
    """What is found while the files are read."""

    def __init__(self, records: Records, device: int | None) -> None:
        self.records, self.strings, self.device = records, records.strings, device
        self.figures, self.links = [records.vendor], [records.vendor_links]
        self.omissions: list[Omission] = []
        self.logs: list[LossLog] = []

    def _log(self, path: Path) -> LossLog:
        self.logs.append(LossLog(path))
        return self.logs[-1]

    def read_step_sums(self, paths: tuple[Path, ...]) -> None:
        """Read step_trace_time.csv."""
        for path in paths:
            times = read_step_sums(path, self.device, self._log(path))
            self.figures.append(step_figures(times, path, STEP_SUM_NS, self.strings))

    def read_operator_sums(self, paths: tuple[Path, ...]) -> None:
        """Read the slices of op_statistic."""
        log = self._log(paths[0])
        self.figures.append(read_operator_sums(paths, self.strings, self.device, log))

    def read_ops(self, paths: tuple[Path, ...]) -> None:
        """Read communication.json."""
        for path in paths:
            self._add_ops(read_op_file(path, self.strings, self._log(path)), path.name)

    def read_links(self, paths: tuple[Path, ...]) -> None:
        """Read communication_matrix.json."""
        for path in paths:
            self._add_links(read_link_file(path, self.strings, self._log(path)))

    def read_database(self, paths: tuple[Path, ...]) -> None:
        """Read the step sums, ops and links of analysis.db."""
        from timeline.sources.decoders.sqlite import open_database

        for path in paths:
            with open_database(path) as database:
                self.logs.append(database.damage)
                times = read_step_table(database, self.device)
                self.figures.append(step_figures(times, path, DATABASE_NS, self.strings))
                self._add_ops(read_op_table(database, self.strings), path.name)
                self._add_links(read_link_table(database, self.strings))

    def read_overlap(self, paths: tuple[Path, ...]) -> None:
        """Read the Overlap Analysis of a trace."""
        self.figures += [
            read_overlap_events(path, paths[0].name, self.device, self.strings) for path in paths
        ]

    def _add_ops(self, measured: MeasuredOps, file: str) -> None:
        if self.device is not None:
            measured = measured.of_ops(self.records.ops)
        if len(measured):
            self.figures.append(measured.figures(file, self.strings))
            ops = with_moved_bytes(self.records.ops, measured)
            self.records = replace(self.records, ops=ops)

    def _add_links(self, links: VendorLinks) -> None:
        """Add links; where the files are of several devices, those that begin at the rank."""
        if self.device is not None:
            links = links.take(links.source_rank == self.records.rank)
        self.links.append(links)


_READERS: Mapping[str, Callable[[_Reading, tuple[Path, ...]], None]] = {
    "step_trace_time.csv": _Reading.read_step_sums,
    "op_statistic.csv": _Reading.read_operator_sums,
    "communication.json": _Reading.read_ops,
    "communication_matrix.json": _Reading.read_links,
    "msprof.json": _Reading.read_overlap,
    "trace_view.json": _Reading.read_overlap,
    "analysis.db": _Reading.read_database,
    "communication_analyzer.db": _Reading.read_database,
}
"""What reads each kind of file; every kind that `companions.source` passes has one."""
