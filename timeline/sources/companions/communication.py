"""The profiler's measurements of communication ops and links, in files and databases."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.profiler_tables import Measure, VendorFigures, VendorLinks
from timeline.records.tables import CommunicationOps
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import table_of_rows
from timeline.sources.decoders.json_values import mend_json
from timeline.sources.files.opened import read_whole_file

if TYPE_CHECKING:
    from timeline.sources.decoders.sqlite import Database

ELAPSED_NS = 1
"""The error of the length of an op."""
_MOST = 1 << 53
"""The largest plausible size in bytes and time in ns: 9 PB and 104 days."""
_ALL_OPS = "Total Op Info"
"""The name of the sum over all ops."""
_OVER_NETWORK, _OVER_BUS = "RDMA", "SDMA"
_LOCAL = "LOCAL"
_STEP = re.compile(r"step(\d{1,18})")
_PICK = re.compile(r".*-(?:top\d*|bottom\d*|middle)")
"""Names of single ops that the profiler picks out of a kind."""
_TOTAL = "-total"
"""The ending of names of sums over a kind of op."""
_PAIR = re.compile(r"(\d{1,9})-(\d{1,9})")


class MeasuredOps(ColumnTable):
    """Communication ops as the profiler measured them.

    group: its number or name, or NO_NAME. start_ns: exact to a quarter of a us, or NO_TIME.
    waited_ns, transfer_ns: time in which its tasks waited for signals of other ranks, and moved
    data. moved_bytes: the sum over all links, NO_ID if no link is listed.
    """

    name: Codes = column(np.int32)
    group: Codes = column(np.int32)
    step: Int64 = column(np.int64)
    start_ns: Int64 = column(np.int64)
    elapsed_ns: Int64 = column(np.int64)
    waited_ns: Int64 = column(np.int64)
    transfer_ns: Int64 = column(np.int64)
    moved_bytes: Int64 = column(np.int64)

    def of_ops(self, ops: CommunicationOps) -> MeasuredOps:
        """Return the measured ops that are among `ops`, by name and start within a microsecond."""
        starts_us = (ops.start_ns // 1000).tolist()
        keys = set(zip(ops.name.tolist(), starts_us, strict=True))
        rows = zip(self.name.tolist(), (self.start_ns // 1000).tolist(), strict=True)
        return self.take(
            np.array([any((name, us + off) in keys for off in (-1, 0, 1)) for name, us in rows])
        )

    def figures(self, file: str, strings: StringPool) -> VendorFigures:
        """Return a figure with the length of each op."""
        return VendorFigures.of(
            len(self),
            measure=Measure.COLLECTIVE,
            file=strings.code(file),
            step=self.step,
            name=self.name,
            value_ns=self.elapsed_ns,
            tolerance_ns=ELAPSED_NS,
        )


class _Times(msgspec.Struct):
    start_us: float | None = msgspec.field(name="Start Timestamp(us)", default=None)
    elapsed_ms: float | None = msgspec.field(name="Elapse Time(ms)", default=None)
    waited_ms: float | None = msgspec.field(name="Wait Time(ms)", default=0.0)
    transfer_ms: float | None = msgspec.field(name="Transit Time(ms)", default=0.0)


class _Transfers(msgspec.Struct):
    size_mb: float | None = msgspec.field(name="Transit Size(MB)", default=0.0)


class _Op(msgspec.Struct):
    times: _Times = msgspec.field(name="Communication Time Info", default_factory=_Times)
    transfers: dict[str, _Transfers] = msgspec.field(
        name="Communication Bandwidth Info", default_factory=dict
    )


class _Link(msgspec.Struct):
    transport: str = msgspec.field(name="Transport Type", default="")
    size_mb: float | None = msgspec.field(name="Transit Size(MB)", default=0.0)
    taken_ms: float | None = msgspec.field(name="Transit Time(ms)", default=0.0)


_OpKey = tuple[str, str, str]
"""Name, group and step of an op."""
_decode_ops = msgspec.json.Decoder(dict[str, dict[str, dict[str, _Op]]]).decode
_decode_links = msgspec.json.Decoder(dict[str, dict[str, dict[str, dict[str, _Link]]]]).decode


def read_op_file(path: Path, strings: StringPool, damage: LossLog) -> MeasuredOps:
    """Read communication.json.

    Raises:
        SourceError: the file cannot be read, or holds something else.
    """
    return _measured(_entries(path, _decode_ops), strings, damage)


def read_op_groups(path: Path) -> dict[str, str]:
    """Return groups by name of op in communication.json; ops without a group are left out.

    Raises:
        SourceError: the file cannot be read, or holds something else.
    """
    group_of: dict[str, str] = {}
    for (name, group, _), _ in _entries(path, _decode_ops):
        if group:
            group_of.setdefault(name, group)
    return group_of


def read_link_file(path: Path, strings: StringPool, damage: LossLog) -> VendorLinks:
    """Read communication_matrix.json: the sums of each kind of op over each link.

    Raises:
        SourceError: the file cannot be read, or holds something else.
    """
    entries = _entries(path, _decode_links)
    links = [(key, pair, link) for key, pairs in entries for pair, link in pairs.items()]
    return _links(links, strings, damage)


def _entries(path: Path, decode: Any) -> Iterator[tuple[_OpKey, Any]]:
    """Yield the entries of a file, which are nested by step, kind and NAME@GROUP; NaN is null."""
    data = read_whole_file(path)
    try:
        try:
            document = decode(data)
        except msgspec.DecodeError:
            document = decode(mend_json(data))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(path, f"does not hold measures of communication: {error}.") from error
    for step, kinds in document.items():
        for entries in kinds.values():
            for key, entry in entries.items():
                name, _, group = key.partition("@")
                yield (name, group, step), entry


# -- databases -------------------------------------------------------------------------------------


def read_op_table(database: Database, strings: StringPool) -> MeasuredOps:
    """Read the ops of analysis.db, which has the content of communication.json."""
    measured = ("hccl_op_name", "group_name", "step", "start_timestamp", "elapse_time")
    sizes = ("hccl_op_name", "group_name", "step", "transport_type", "transit_size")
    if not database.has("CommAnalyzerTime", *measured):
        return MeasuredOps.empty()
    moved: dict[tuple[Any, ...], dict[str, _Transfers]] = {}
    if database.has("CommAnalyzerBandwidth", *sizes):
        query = f"SELECT DISTINCT {', '.join(sizes)} FROM CommAnalyzerBandwidth"
        for *key, transport, size_mb in database.rows(query):
            moved.setdefault(tuple(key), {})[str(transport)] = _Transfers(_real(size_mb))
    optional = ("wait_time", "transit_time")
    parts = (name if database.has("CommAnalyzerTime", name) else "0" for name in optional)
    ops = (
        (
            (str(name), str(group or ""), str(step)),
            _Op(_Times(*map(_real, times)), moved.get((name, group, step), {})),
        )
        for name, group, step, *times in database.rows(
            f"SELECT {', '.join((*measured, *parts))} FROM CommAnalyzerTime"
        )
    )
    return _measured(ops, strings, database.damage)


def read_link_table(database: Database, strings: StringPool) -> VendorLinks:
    """Read the links of analysis.db, which has the content of communication_matrix.json."""
    columns = ("step", "hccl_op_name", "src_rank", "dst_rank")
    measured = ("transport_type", "transit_size", "transit_time")
    group = "group_name" if database.has("CommAnalyzerMatrix", "group_name") else "''"
    if not database.has("CommAnalyzerMatrix", *columns, *measured):
        return VendorLinks.empty()
    query = f"SELECT {', '.join((*columns, *measured, group))} FROM CommAnalyzerMatrix"
    links = [
        (
            (str(name), str(group), str(step)),
            f"{source}-{target}",
            _Link(str(transport), _real(size_mb), _real(taken_ms)),
        )
        for step, name, source, target, transport, size_mb, taken_ms, group in database.rows(query)
    ]
    return _links(links, strings, database.damage)


def _real(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


# -- tables ----------------------------------------------------------------------------------------


def _measured(
    ops: Iterable[tuple[_OpKey, _Op]], strings: StringPool, damage: LossLog
) -> MeasuredOps:
    """Build the table of ops; count ops without a length or with an impossible number as damage."""
    rows = []
    for (name, group, step), op in ops:
        if name == _ALL_OPS:
            continue
        times = op.times
        values = (times.elapsed_ms, times.waited_ms, times.transfer_ms, _moved_mb(op.transfers))
        *lengths_ns, moved_bytes = map(_millionths, values)
        if None in lengths_ns or moved_bytes is None:
            damage.add("ops without a length, or with an invalid size", f"{name} of {step}")
            continue
        key = strings.code(name), strings.code(group), _step_of(step)
        moved_bytes = moved_bytes if op.transfers else NO_ID
        rows.append((*key, _start_ns(times.start_us), *lengths_ns, moved_bytes))
    return table_of_rows(MeasuredOps, rows)


def _moved_mb(transfers: Mapping[str, _Transfers]) -> float | None:
    """Add the size over buses, whose sum is SDMA, and that over RDMA; None if any size is null."""
    sizes = ((kind, transfer.size_mb) for kind, transfer in transfers.items())
    sizes_mb = {kind: size_mb for kind, size_mb in sizes if size_mb is not None}
    if len(sizes_mb) < len(transfers):
        return None
    network_mb = sizes_mb.pop(_OVER_NETWORK, 0.0)
    return sizes_mb.get(_OVER_BUS, sum(sizes_mb.values())) + network_mb


def _start_ns(start_us: float | None) -> int:
    """Convert a start without rounding its whole microseconds; NO_TIME if it is implausible."""
    if start_us is None or not 0 < start_us < _MOST:
        return int(NO_TIME)
    whole_us = int(start_us)
    return whole_us * 1000 + round((start_us - whole_us) * 1000)


def with_moved_bytes(ops: CommunicationOps, measured: MeasuredOps) -> CommunicationOps:
    """Set the moved bytes of ops to those measured for the n-th op of the same name.

    Names with different numbers of ops and measurements are left out, since they cannot be matched.
    """
    moved_bytes = np.full(len(ops), NO_ID)
    by_measured = np.lexsort((measured.start_ns, measured.name))
    by_op = np.lexsort((ops.start_ns, ops.name))
    names, codes = ops.name[by_op], measured.name[by_measured]
    begin, end = np.searchsorted(codes, names), np.searchsorted(codes, names, side="right")
    op_begin = np.searchsorted(names, names)
    same = (end - begin == np.searchsorted(names, names, side="right") - op_begin) & (end > begin)
    at = (begin + np.arange(len(names)) - op_begin)[same]
    moved_bytes[by_op[same]] = measured.moved_bytes[by_measured][at]
    return replace(ops, moved_bytes=moved_bytes)


def _links(
    links: list[tuple[_OpKey, str, _Link]], strings: StringPool, damage: LossLog
) -> VendorLinks:
    """Return the links of sums over kinds of op; in steps without such sums, those of all ops.

    Transfers within a rank are left out; links without a size or time are counted as damage.
    """
    summed = {step for (name, _, step), *_ in links if name.endswith(_TOTAL)}
    rows = []
    for (name, group, step), pair, link in links:
        wanted = name.endswith(_TOTAL) if step in summed else not _PICK.fullmatch(name)
        ranks = _PAIR.fullmatch(pair)
        if not (wanted and ranks and ranks[1] != ranks[2] and link.transport != _LOCAL):
            continue
        numbers = _millionths(link.size_mb), _millionths(link.taken_ms)
        if None in numbers:
            damage.add("links without a size and a time", f"{name} of {step}")
            continue
        ends = int(ranks[1]), int(ranks[2])
        row = (_step_of(step), *ends, strings.code(link.transport), *numbers, strings.code(group))
        rows.append(row)
    return table_of_rows(VendorLinks, rows)


def _step_of(key: str) -> int:
    match = _STEP.fullmatch(key)
    return int(match[1]) if match else NO_ID


def _millionths(value: float | None) -> int | None:
    """Convert MB to bytes, or ms to ns; None if the value is missing or implausible."""
    if value is None or not 0 <= value * 1_000_000 <= _MOST:
        return None
    return round(value * 1_000_000)
