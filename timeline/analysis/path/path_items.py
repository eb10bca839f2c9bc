"""PathItems: what of one rank can lie on the critical path, and what each item waited for."""

from __future__ import annotations

import enum
from dataclasses import field, replace

import numpy as np

from timeline.columns.columns import Codes, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.frozen import dataclass
from timeline.records.clock import ClockMove
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import Spans

__all__ = ["PathItems", "PathKind", "RankPath"]


class PathKind(enum.IntEnum):
    """What a segment of a critical path is; its name in lower case is the one that is published."""

    COMPUTING = 0
    TRANSFER = 1
    """In a communication op, from the arrival of its last rank on."""
    COPY = 2
    HOST = 3
    """Before the host asked for the task, since the host last waited for the device."""
    QUEUED = 4
    """Asked for, and not launched yet."""
    LAUNCH = 5
    """From the start of the launch call to that of the task."""
    BETWEEN_TASKS = 6
    """From the end of what the task waited for to its start."""
    NOT_PROFILED = 7
    """On a rank that is not in the profile, before the op that it came last to."""

    @property
    def label(self) -> str:
        """What programs know it by."""
        return self.name.lower()


class PathItems(Spans):
    """Compute tasks, copies and communication ops of one rank, in order of start.

    kind: COMPUTING, COPY, or TRANSFER of an op. name: code of the strings of the rank. collective:
    its row among the rank's collectives, NO_ID for what is no op. before: the row whose end let it
    start, always an earlier one, NO_ID where there is none; where the host was late, what the host
    had waited for last. launch_ns, asked_ns, host_ns: since when it was launched, queued, and the
    host ran towards it, descending from start_ns, to which all are equal where the device let it
    start; host_ns is NO_TIME where the host did not wait before. call, call_ns: the call that took
    most of the time from host_ns to asked_ns, and how much.
    """

    kind: Codes = column(np.int32)
    name: Codes = column(np.int32)
    collective: Codes = column(np.int32, NO_ID)
    before: Codes = column(np.int32, NO_ID)
    launch_ns: Int64 = column(np.int64, NO_TIME)
    asked_ns: Int64 = column(np.int64, NO_TIME)
    host_ns: Int64 = column(np.int64, NO_TIME)
    call: Codes = column(np.int32, NO_NAME)
    call_ns: Int64 = column(np.int64, 0)

    def moved(self, move: ClockMove) -> PathItems:
        """The items on another clock; how long calls took stays."""
        return replace(super().moved(move), call_ns=self.call_ns)


@dataclass(frozen=True, slots=True)
class RankPath:
    """What of one rank can lie on the critical path; codes are positions in `strings`.

    span_ns: first start and last end of its device work, None without any. Marks that work
    nothing, such as those by which a profiler starts and stops, are not in it.
    """

    strings: tuple[str, ...] = ("",)
    items: PathItems = field(default_factory=PathItems.empty)
    span_ns: tuple[int, int] | None = None

    def moved(self, move: ClockMove) -> RankPath:
        """The items on another clock."""
        span_ns = self.span_ns
        if span_ns is not None:
            span_ns = move.of_moment(span_ns[0]), move.of_moment(span_ns[1])
        return replace(self, items=self.items.moved(move), span_ns=span_ns)
