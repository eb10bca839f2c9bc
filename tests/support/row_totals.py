"""What each row of a loaded trace of either format holds: counts, busy time and ends."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.support.drawn_slices import drawn_rows
from tests.support.loaded_picture import TEXT_ROWS
from tests.support.perfetto_sql import TraceProcessor
from timeline.encoders.chrome import OVERVIEW
from timeline.layers import SLICES
from timeline.records.tables import GPU

CONTINUED = """(
  SELECT int_value FROM args WHERE args.arg_set_id = slice.arg_set_id AND key GLOB '*.continued'
)"""
"""SQL: 1 of a slice that goes on from the part before, whatever it stands for; else NULL."""
LAYER_OF_CATEGORY = {spec.category.value: spec.kind.value for spec in SLICES.values()}
"""The layer of slices by what viewers filter by; pieces of overlap may have others."""
Row = tuple[str, ...]
"""The names on the way to a row, outermost first; process and thread in JSON."""


@dataclass(frozen=True)
class RowTotals:
    """What the slices of one row stand for.

    count and busy_ns: the records behind them and their summed length; drawn: the slices there
    are; merged: those of them that stand for several; continued: those that go on from the
    part before; first_ns and last_ns: the first start and the last end.
    """

    count: int
    busy_ns: int
    drawn: int
    merged: int
    continued: int
    first_ns: int
    last_ns: int

    def __add__(self, other: RowTotals) -> RowTotals:
        return RowTotals(
            self.count + other.count,
            self.busy_ns + other.busy_ns,
            self.drawn + other.drawn,
            self.merged + other.merged,
            self.continued + other.continued,
            min(self.first_ns, other.first_ns),
            max(self.last_ns, other.last_ns),
        )


@dataclass(frozen=True)
class CounterTotals:
    """The samples of one counter: how many, their range, and the first and the last moment."""

    count: int
    least: float
    greatest: float
    first_ns: int
    last_ns: int

    def __add__(self, other: CounterTotals) -> CounterTotals:
        return CounterTotals(
            self.count + other.count,
            min(self.least, other.least),
            max(self.greatest, other.greatest),
            min(self.first_ns, other.first_ns),
            max(self.last_ns, other.last_ns),
        )


@dataclass(frozen=True)
class TraceTotals:
    """All that is counted of a loaded trace, by one query.

    errors: what was lost or wrong while it was loaded; slices, unended, samples, flows: how many
    there are, those of text rows too; by_category: the slices of each row and category, in parts,
    without text rows; counters: the samples of each counter.
    """

    errors: tuple[tuple[str, int], ...]
    slices: int
    unended: int
    samples: int
    flows: int
    by_category: tuple[tuple[Row, str, RowTotals], ...]
    counters: Mapping[Row, CounterTotals]

    @cached_property
    def rows(self) -> dict[Row, RowTotals]:
        """What each row with slices holds, lanes together; a merged slice tells what it stands for.

        A continued slice is no record of its own, so it adds its length but no count.
        """
        found: dict[Row, RowTotals] = {}
        for row, _, totals in self.by_category:
            found[row] = found[row] + totals if row in found else totals
        return found

    @cached_property
    def layers(self) -> dict[str, RowTotals]:
        """What each layer of slices holds, whatever its rows are called: the category tells it."""
        found: dict[str, RowTotals] = {}
        for row, category, totals in self.by_category:
            layer = LAYER_OF_CATEGORY.get(category) or layer_of(row)
            found[layer] = found[layer] + totals if layer in found else totals
        return found


def rows_of(processor: TraceProcessor, *, is_json: bool) -> dict[int, Row]:
    """The row of each track; lanes of a row share it."""
    if not is_json:
        return drawn_rows(processor)
    threads = processor.rows(
        "SELECT thread_track.id, process.name, thread.name FROM thread_track"
        " JOIN thread USING (utid) LEFT JOIN process USING (upid)"
    )
    counters = processor.rows(
        "SELECT t.id, process.name, t.name FROM process_counter_track t JOIN process USING (upid)"
    )
    return {track: (process or "", name) for track, process, name in (*threads, *counters)}


def is_text(row: Row) -> bool:
    """Whether a row says something of all records, and holds none."""
    return row[0] in TEXT_ROWS or (row[0] == OVERVIEW and row[1].partition(": ")[0] in TEXT_ROWS)


_PARTITION = re.compile(r"(.*: )?(Rank \d+(: .*)?|Where time goes|In total)")
"""Rows that part the time of a rank: its own, and what stands below where it has no other."""


def layer_of(row: Row) -> str:
    """The layer whose resolution holds on a row; what is not named here is a layer of the host."""
    way = " ".join(row)
    if any(part == GPU or part.startswith(f"{GPU}: ") for part in row):
        return "task"
    if _PARTITION.fullmatch(row[-1]):
        return "partition"
    for part, layer in (
        ("Critical path", "critical_path"),
        ("Step Trace", "step"),
        ("Steps", "step"),
        ("Overlap Analysis", "overlap"),
        ("Ascend Hardware", "task"),
        ("Counters", "counters"),
        ("Not in this file", "note"),
        (" Plane ", "hccl_task"),
        ("Communication", "communication_op"),
        ("Collectives", "communication_op"),
    ):
        if part in way:
            return layer
    return "host_call"


def trace_totals(processor: TraceProcessor, *, is_json: bool) -> TraceTotals:
    """Count all of a trace."""
    kind = "args" if is_json else "merged"
    parts: dict[str, list[tuple[Any, ...]]] = {
        part: [] for part in ("slices", "counter", "flows", "error")
    }
    for part, *cells in processor.rows(
        f"""
        WITH known AS (
          SELECT track_id, ts, dur, category,
            extract_arg(arg_set_id, '{kind}.busy_ns') AS busy,
            coalesce(extract_arg(arg_set_id, '{kind}.count'),
                     extract_arg(arg_set_id, 'communication.count')) AS stands,
            {CONTINUED} AS continued
          FROM slice
        )
        SELECT 'slices', track_id, category,
          sum(CASE WHEN busy IS NOT NULL THEN stands WHEN continued THEN 0 ELSE 1 END),
          sum(coalesce(busy, dur) >> 32), sum(coalesce(busy, dur) & 4294967295),
          count(*), count(busy), count(continued), min(ts), max(ts + dur), count(dur < 0 OR NULL)
        FROM known GROUP BY track_id, category
        UNION ALL
        SELECT 'counter', track_id, count(*), min(value), max(value), min(ts), max(ts),
          0, 0, 0, 0, 0
        FROM counter GROUP BY track_id
        UNION ALL SELECT 'flows', count(*), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM flow
        UNION ALL
        SELECT 'error', name, value, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM stats
        WHERE value > 0 AND severity IN ('error', 'data_loss')
        """
    ):
        parts[part].append(tuple(cells))
    rows = rows_of(processor, is_json=is_json)
    by_category = []
    slices = unended = 0
    for track, category, count, busy_high, busy_low, *numbers, open_ended in parts["slices"]:
        totals = RowTotals(count, (busy_high << 32) + busy_low, *numbers)
        slices += totals.drawn
        unended += open_ended
        if not is_text(rows[track]):
            by_category.append((rows[track], category, totals))
    counters: dict[Row, CounterTotals] = {}
    for track, *found, _, _, _, _, _ in parts["counter"]:
        samples, row = CounterTotals(*found), rows[track]
        counters[row] = counters[row] + samples if row in counters else samples
    ((flows, *_),) = parts["flows"]
    return TraceTotals(
        tuple((str(name), int(value)) for name, value, *_ in parts["error"]),
        slices,
        unended,
        sum(found.count for found in counters.values()),
        int(flows),
        tuple(by_category),
        counters,
    )
