"""What the profiler measured of each communication op, and of each link between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.frozen import dataclass
from timeline.patterns import compile_late
from timeline.records.not_given import NO_ID
from timeline.records.tables import CommunicationOps
from timeline.records.vendor import Measure, VendorFigures, VendorLinks

if TYPE_CHECKING:
    from timeline.sources.decoders.sqlite import Database

__all__ = [
    "ALL_OPS",
    "MOST",
    "MeasuredLink",
    "MeasuredOps",
    "add_op",
    "links_of",
    "read_link_table",
    "read_op_table",
    "with_moved_bytes",
]

ELAPSED_NS = 1
MOST = 1 << 53
"""No size in bytes and no time in ns is larger: that is 9 PB and 104 days."""
ALL_OPS = "Total Op Info"
"""What the sum of all ops is called, which is none."""
_OVER_NETWORK, _OVER_BUS = "RDMA", "SDMA"
_LOCAL = "LOCAL"
_STEP = compile_late(r"step(\d{1,18})")
_PICK = compile_late(r".*-(?:top\d*|bottom\d*|middle)")
"""Single ops that the profiler picks out of those of a kind."""
_TOTAL = "-total"
_PAIR = compile_late(r"(\d{1,9})-(\d{1,9})")


@dataclass(frozen=True)
class MeasuredLink:
    """What one rank moved to another over one kind of link."""

    transport: str
    size_mb: float
    taken_ms: float


@dataclass(frozen=True)
class MeasuredOps:
    """Communication ops as the profiler measured them: columns in order of their start.

    moved_bytes: what the rank sent over all links, NO_ID where that is not told. groups: the number
    or name of the group of each, empty where there is none. waited_ns, transfer_ns: while its tasks
    waited for a signal of another rank, and moved data.
    """

    names: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    start_us: list[float] = field(default_factory=list)
    elapsed_ns: list[int] = field(default_factory=list)
    moved_bytes: list[int] = field(default_factory=list)
    waited_ns: list[int] = field(default_factory=list)
    transfer_ns: list[int] = field(default_factory=list)

    def figures(self, file: str, strings: StringPool) -> VendorFigures:
        """The length of each op."""
        return VendorFigures.of(
            len(self.names),
            {
                "measure": np.full(len(self.names), Measure.COLLECTIVE),
                "file": np.full(len(self.names), strings.code(file)),
                "step": self.steps,
                "name": strings.codes(self.names),
                "value_ns": self.elapsed_ns,
                "tolerance_ns": np.full(len(self.names), ELAPSED_NS),
            },
        )


def read_op_table(database: Database) -> MeasuredOps:
    """Read the ops of analysis.db, which says the same as communication.json."""
    measured = ("hccl_op_name", "group_name", "step", "start_timestamp", "elapse_time")
    sizes = ("hccl_op_name", "group_name", "step", "transport_type", "transit_size")
    found = MeasuredOps()
    if not database.has("CommAnalyzerTime", *measured):
        return found
    moved: dict[tuple[Any, ...], dict[str, float]] = {}
    if database.has("CommAnalyzerBandwidth", *sizes):
        query = f"SELECT DISTINCT {', '.join(sizes)} FROM CommAnalyzerBandwidth"
        for *key, transport, size_mb in database.rows(query):
            moved.setdefault(tuple(key), {})[str(transport)] = _real(size_mb)
    parts = ("wait_time", "transit_time")
    cells = (*measured, *(one if database.has("CommAnalyzerTime", one) else "0" for one in parts))
    for name, group, step, start_us, *times_ms in database.rows(
        f"SELECT {', '.join(cells)} FROM CommAnalyzerTime"
    ):
        if name != ALL_OPS:
            sizes_mb = moved.get((name, group, step), {})
            taken_ms = [_real(time_ms) for time_ms in times_ms]
            of_op = _real(start_us), taken_ms, sizes_mb, database.path
            add_op(found, str(name), str(group or ""), str(step), *of_op)
    return found


def add_op(
    into: MeasuredOps,
    name: str,
    group: str,
    step: str,
    start_us: float,
    taken_ms: Sequence[float],
    sizes_mb: dict[str, float],
    path: Path,
) -> None:
    """Add an op; SDMA is the sum of all buses, beside which RDMA is what goes over the network.

    taken_ms: how long it took, waited and moved data.
    """
    into.names.append(name)
    into.groups.append(group)
    into.steps.append(_step_of(step))
    into.start_us.append(start_us)
    for column, time_ms in zip(
        (into.elapsed_ns, into.waited_ns, into.transfer_ns), taken_ms, strict=True
    ):
        column.append(_whole(time_ms, path))
    buses = {
        kind: size_mb
        for kind, size_mb in sizes_mb.items()
        if kind not in (_OVER_BUS, _OVER_NETWORK)
    }
    moved_mb = sizes_mb.get(_OVER_BUS, sum(buses.values())) + sizes_mb.get(_OVER_NETWORK, 0.0)
    into.moved_bytes.append(_whole(moved_mb, path) if sizes_mb else NO_ID)


def with_moved_bytes(
    ops: CommunicationOps, measured: MeasuredOps, strings: StringPool
) -> CommunicationOps:
    """Ops with what they moved; the n-th of a name is the n-th that was measured.

    Where a name was measured another number of times, which is which cannot be told.
    """
    moved_bytes = np.full(len(ops), NO_ID)
    known = [strings.find(name) for name in measured.names]
    codes = np.array([NO_ID if code is None else code for code in known], np.int64)
    theirs = np.lexsort((np.array(measured.start_us), codes))
    ours = np.lexsort((ops.start_ns, ops.name))
    names = ops.name[ours].astype(np.int64)
    values = np.array(measured.moved_bytes, np.int64)[theirs]
    codes = codes[theirs]
    begin, end = np.searchsorted(codes, names), np.searchsorted(codes, names, side="right")
    our_begin = np.searchsorted(names, names)
    same = (end - begin == np.searchsorted(names, names, side="right") - our_begin) & (end > begin)
    at = (begin + np.arange(len(names)) - our_begin)[same]
    moved_bytes[ours[same]] = values[at]
    return replace(ops, moved_bytes=moved_bytes)


def read_link_table(database: Database, strings: StringPool) -> VendorLinks:
    """Read the links of analysis.db, which says the same as communication_matrix.json."""
    columns = ("step", "hccl_op_name", "src_rank", "dst_rank")
    measured = ("transport_type", "transit_size", "transit_time")
    group = "group_name" if database.has("CommAnalyzerMatrix", "group_name") else "''"
    if not database.has("CommAnalyzerMatrix", *columns, *measured):
        return VendorLinks.empty()
    query = f"SELECT {', '.join((*columns, *measured, group))} FROM CommAnalyzerMatrix"
    cells = [
        (
            str(step),
            str(name),
            str(group),
            f"{source}-{target}",
            MeasuredLink(str(transport), _real(size_mb), _real(taken_ms)),
        )
        for step, name, source, target, transport, size_mb, taken_ms, group in database.rows(query)
    ]
    return links_of(cells, strings, database.path)


def links_of(
    cells: Sequence[tuple[str, str, str, str, MeasuredLink]], strings: StringPool, path: Path
) -> VendorLinks:
    """The sums of each kind of op; where there are none, the ops themselves.

    What stays on its own rank is no link.
    """
    summed = {step for step, name, *_ in cells if name.endswith(_TOTAL)}
    rows = []
    for step, name, group, pair, link in cells:
        wanted = name.endswith(_TOTAL) if step in summed else not _PICK.fullmatch(name)
        ranks = _PAIR.fullmatch(pair)
        if wanted and ranks and ranks[1] != ranks[2] and link.transport != _LOCAL:
            rows.append((_step_of(step), int(ranks[1]), int(ranks[2]), link, group))
    return VendorLinks.of(
        len(rows),
        {
            "step": [step for step, *_ in rows],
            "source_rank": [source for _, source, *_ in rows],
            "target_rank": [target for _, _, target, *_ in rows],
            "link": strings.codes(link.transport for *_, link, _ in rows),
            "size_bytes": [_whole(link.size_mb, path) for *_, link, _ in rows],
            "total_ns": [_whole(link.taken_ms, path) for *_, link, _ in rows],
            "group": strings.codes(group for *_, group in rows),
        },
    )


def _step_of(key: str) -> int:
    match = _STEP.fullmatch(key)
    return int(match[1]) if match else NO_ID


def _whole(value: float, path: Path) -> int:
    """Bytes of MB, or ns of ms.

    Raises:
        SourceError: it is no size or time.
    """
    if not 0 <= value * 1_000_000 <= MOST:
        raise SourceError(path, f"holds {value}, which is no size in MB and no time in ms.")
    return round(value * 1_000_000)


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0
