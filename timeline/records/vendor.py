"""What the profiler itself says of a capture: its own sums, links, and the files that are unused.

Nothing of it is drawn. The sums are what figures of tlexport are compared with; the links stand in
where the tasks that moved data are not read.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME

_NO_STEP = -1


class Measure(enum.IntEnum):
    """What a number of the profiler says."""

    COMPUTING = 0
    COMMUNICATION = 1
    NOT_OVERLAPPED = 2
    FREE = 3
    OPERATOR = 4
    """How long all operators of a type took together."""
    COLLECTIVE = 5
    """How long a communication op took, or all of its name together."""


class VendorFigures(ColumnTable):
    """Numbers of the profiler: one row per measure, step and name."""

    measure: Int64 = column(np.int64)
    file: Codes = column(np.int32)
    """The file that holds it, as it is named to people."""
    step: Int64 = column(np.int64, _NO_STEP)
    """NO_ID for one of the whole capture."""
    name: Codes = column(np.int32, NO_NAME)
    """The type of operator, or the op."""
    value_ns: Int64 = column(np.int64)
    tolerance_ns: Int64 = column(np.int64)
    """How far the file may be off by its own rounding."""


class VendorLinks(ColumnTable):
    """What each link moved, as the profiler sums it up.

    Sources give ranks as numbers inside their group; they are global where its members are known.
    """

    step: Int64 = column(np.int64, _NO_STEP)
    source_rank: Int64 = column(np.int64)
    target_rank: Int64 = column(np.int64)
    link: Codes = column(np.int32)
    size_bytes: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)
    group: Codes = column(np.int32, NO_NAME)
    """The number that CANN makes of the group's name, or that name."""


@dataclass(frozen=True, order=True)
class UnusedFile:
    """A file, or a table of a database, that lies with a capture and is not used."""

    file: str
    what: str
    """What it holds."""
