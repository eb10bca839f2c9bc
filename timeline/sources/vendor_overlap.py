"""Sums up the overlap that the profiler worked out itself, which is compared and never drawn."""

from __future__ import annotations

import numpy as np

from timeline.records.columns import Int64
from timeline.records.strings import StringPool
from timeline.records.tables import NO_ID
from timeline.records.vendor import Measure, VendorFigures
from timeline.sources.lane_events import LaneEvents
from timeline.sources.sqlite_columns import Database

__all__ = ["MEASURES", "overlap_figures", "read_overlap_table"]

MEASURES = {
    "Computing": Measure.COMPUTING,
    "Communication": Measure.COMMUNICATION,
    "Communication(Not Overlapped)": Measure.NOT_OVERLAPPED,
    "Free": Measure.FREE,
}
"""How the profiler names the parts of device time, in its events and in step_trace_time.csv."""
_TYPES = dict(enumerate(MEASURES.values()))
"""The same by number, in tables (ENUM_OVERLAP_ANALYSIS_TYPE)."""
SEGMENT_NS = 1
"""How far either writer rounds a segment."""


def read_overlap_table(
    database: Database, device: int | None, strings: StringPool
) -> VendorFigures:
    """The summed length of the rows of OVERLAP_ANALYSIS, which msprof and Insight write."""
    columns = {"startNs": 0, "endNs": 0, "type": NO_ID}
    if not database.has("OVERLAP_ANALYSIS", *columns):
        return VendorFigures.empty()
    only = device is not None and database.has("OVERLAP_ANALYSIS", "deviceId")
    where = f'WHERE "deviceId" = {device}' if only else ""
    found = database.integers("OVERLAP_ANALYSIS", columns, where)
    lengths_ns = found["endNs"] - found["startNs"]
    parts = {measure: lengths_ns[found["type"] == kind] for kind, measure in _TYPES.items()}
    return _summed(parts, f"OVERLAP_ANALYSIS of {database.path.name}", NO_ID, strings)


def overlap_figures(lanes: LaneEvents, file: str, step: int, strings: StringPool) -> VendorFigures:
    """The summed length of the events of Overlap Analysis, by their names."""
    names, spans = lanes.names(), lanes.spans()
    lengths_ns = spans["end_ns"] - spans["start_ns"]
    parts = {measure: lengths_ns[names == strings.code(name)] for name, measure in MEASURES.items()}
    return _summed(parts, f"Overlap Analysis of {file}", step, strings)


def _summed(
    parts: dict[Measure, Int64], file: str, step: int, strings: StringPool
) -> VendorFigures:
    """A row for each part of device time that has segments; NO_ID is the step of the capture."""
    known = {measure: lengths_ns for measure, lengths_ns in parts.items() if len(lengths_ns)}
    return VendorFigures.of(
        len(known),
        {
            "measure": list(known),
            "file": np.full(len(known), strings.code(file), np.int32),
            "step": np.full(len(known), NO_ID if step < 0 else step, np.int64),
            "value_ns": [int(lengths_ns.sum()) for lengths_ns in known.values()],
            "tolerance_ns": [SEGMENT_NS * len(lengths_ns) for lengths_ns in known.values()],
        },
    )
