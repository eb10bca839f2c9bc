"""Host calls: waits for the device or for data, launches, and the innermost call of a thread."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from timeline.columns.columns import Bool, Codes, Int64, column, sort_rows
from timeline.columns.distinct import distinct
from timeline.columns.intervals import are_touching, cut_at, union
from timeline.columns.nesting import latest_open
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import Spans

_FOR_DEVICE = re.compile(
    r"synchroni[sz]e|syncstream|(?:aclrt|cuda|hip)Memcpy$|aten::item$|_local_scalar_dense$", re.I
)
"""Calls that return when the device has finished earlier work: of CANN, MindSpore and the runtimes
of GPUs, and operators of PyTorch that read a value.
"""
_FOR_DATA = re.compile(r"enumerate\(DataLoader\)|dataloader.*__next__", re.I)
"""Iterators of PyTorch's DataLoader, as its own ranges and as Python frames name them."""
_FETCHES = re.compile(r"get_?next(?!\w*grad)", re.I)
"""Operators that fetch the next data."""

_LAUNCHES = re.compile(r"launch(?!.*host)", re.I)
"""GPU runtime calls that launch kernels or graphs; not cudaLaunchHostFunc."""
_BEGINS_CAPTURE = re.compile(r"begincapture", re.I)
_ENDS_CAPTURE = re.compile(r"endcapture|graphinstantiate", re.I)

_LEVEL = re.compile(r"(?:AscendCL|GE|Hccl|Model|Node|Runtime)@")
"""Prefix of calls of CANN in traces, which databases do without."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""Place in memory of the object of a method of Python, which differs from process to process."""


def call_name(name: str) -> str:
    """Return the name that host calls of one kind share in any layout and process.

    >>> call_name("AscendCL@aclrtMalloc"), call_name("<built-in method add of Tensor at 0x7f3c>")
    ('aclrtMalloc', '<built-in method add of Tensor>')
    """
    bare = _ADDRESS.sub("", name) if " at 0x" in name else name
    return bare[level.end() :] if (level := _LEVEL.match(bare)) else bare


def names_waiting_for_device(strings: StringPool) -> Codes:
    """Return the codes of the calls that wait for the device, (k,) ascending."""
    return _named(strings, _FOR_DEVICE, "sync", "memcpy", "item", "_local_scalar_dense")


def names_waiting_for_data(strings: StringPool) -> Codes:
    """Return the codes of the calls that wait for data, (k,) ascending."""
    return _named(strings, _FOR_DATA, "dataloader")


def fetching_names(strings: StringPool) -> Codes:
    """Return the codes of the operators that fetch data on the device, (k,) ascending."""
    return _named(strings, _FETCHES, "next")


def launching_names(strings: StringPool) -> Codes:
    """Return the codes of the calls that launch kernels, (k,) ascending."""
    return _named(strings, _LAUNCHES, "launch")


def capture_edges(strings: StringPool) -> tuple[Codes, Codes]:
    """Return the codes of the calls that begin, and of those that end, the capture of a stream."""
    return (
        _named(strings, _BEGINS_CAPTURE, "begincapture"),
        _named(strings, _ENDS_CAPTURE, "endcapture", "graphinstantiate"),
    )


def _named(strings: StringPool, pattern: re.Pattern[str], *words: str) -> Codes:
    """Return the codes of the strings that contain a pattern, (k,) ascending.

    words: lower-case words, at least one of which every match contains.
    """
    having = strings.codes_with(words).tolist()
    return np.array([code for code in having if pattern.search(strings[code])], np.int32)


WINDOW_CALLS = 1 << 16
"""Number of calls processed at a time, besides those still open."""


class Calls(Spans):
    """Calls of one thread, in any order; row: of each in its own table."""

    row: Int64 = column(np.int64)


class CallStretches(Spans):
    """Intervals with one innermost call, or none.

    stretch: number of the given interval it is a part of; call: row of the innermost call, NO_ID if
    none is open.
    """

    stretch: Int64 = column(np.int64)
    call: Int64 = column(np.int64)


def split_by_call(calls: Calls, start_ns: Int64, end_ns: Int64) -> Iterator[CallWindow]:
    """Split intervals by the innermost call, some calls at a time, in order of time.

    Calls may cross if their times were rounded: the one that began last counts. Takes O(n log n)
    time, and memory for the calls of a window and those open then.

    Args:
        calls: of one thread; those without length are never open.
        start_ns, end_ns: (n,) the intervals, in any order, none empty; they may overlap.
    """
    if not len(start_ns):
        return
    order = np.argsort(start_ns, kind="stable")
    begins_ns, ends_ns = start_ns[order], end_ns[order]
    reach_ns = np.maximum.accumulate(ends_ns)
    lasting = calls.take(calls.end_ns > calls.start_ns)
    wanted = are_touching(lasting.start_ns, lasting.end_ns, union(begins_ns, ends_ns))
    calls = lasting.take(wanted)
    calls = calls.take(sort_rows(calls.start_ns, -calls.end_ns))
    opened = Calls.empty()
    bounds = list(range(0, len(calls), WINDOW_CALLS)) or [0]
    least, most = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    for first in bounds:
        stop = first + WINDOW_CALLS
        from_ns = int(calls.start_ns[first]) if first else least
        to_ns = int(calls.start_ns[stop]) if stop < len(calls) else most
        held = Calls.concat([opened, calls[first:stop]])
        here = np.arange(
            np.searchsorted(reach_ns, from_ns, side="right"),
            np.searchsorted(begins_ns, to_ns, side="left"),
        )
        here = here[ends_ns[here] > from_ns]
        if len(here):
            part, starts_ns, stops_ns = cut_at(
                np.maximum(begins_ns[here], from_ns),
                np.minimum(ends_ns[here], to_ns),
                distinct(np.concatenate([held.start_ns, held.end_ns])),
            )
            stretch, call = order[here][part].astype(np.int64), _rows_open(held, starts_ns)
            yield CallWindow(held, CallStretches(starts_ns, stops_ns, stretch, call))
        opened = held.take(held.end_ns > to_ns)


@dataclass(frozen=True)
class CallWindow:
    """Intervals in a part of time, and the calls open in it."""

    calls: Calls
    stretches: CallStretches

    def innermost_of(self, some: Bool) -> Int64:
        """Return the innermost among some of the calls for each interval, NO_ID if none is open."""
        return _rows_open(self.calls.take(some), self.stretches.start_ns)


def _rows_open(calls: Calls, times_ns: Int64) -> Int64:
    if not len(calls):
        return np.full(len(times_ns), NO_ID)
    at = latest_open(calls.start_ns, calls.end_ns, times_ns)
    return np.where(at >= 0, calls.row[at], NO_ID)
