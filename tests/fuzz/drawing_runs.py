"""Short runs from extreme records on: drawing, fitting and encoding, and decoding of what came.

There is no profile, report or trace processor, and next to no rows: of no other runs there are so
many. Each drawing is written in several ways, in full and within limits, and every file is decoded
by `tests/support/decoded_trace.py` and checked; each file is a run.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.oracles import check_resolutions, check_same_rows, check_sums
from tests.fuzz.promises import BrokenPromise
from tests.support.decoded_trace import DamagedTraceError, decode_totals
from tests.support.extreme_records import (
    ExtremeShape,
    ExtremeSource,
    with_strings_in_other_order,
)
from tests.support.row_totals import TraceTotals
from timeline.analysis.selected_rank import DrawOptions
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.commands.results import resolution_row
from timeline.declarations import fill
from timeline.encoders.formats import format_of
from timeline.errors import LimitError
from timeline.fitting.fit import fit
from timeline.fitting.writer import FileNotes, Kept, Part
from timeline.layers import Layer
from timeline.options import Args, ExportOptions, ReadingOptions
from timeline.progress import Silent
from timeline.ranges import LARGEST_ID
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records, read_rank
from timeline.ranks.read_ranks import read_ranks
from timeline.ranks.workers import worker_pool_for
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS, Kind, Selection
from timeline.tracks.rank_tracks import DrawnRank

RANKS = (0, 0, 0, 1, (1 << 16) - 1, 1 << 31, 1 << 53, LARGEST_ID)
JOINED_IN = 16
"""Numbers of which one joins ranks, which takes as long as several of others."""
REORDERED_IN = 8
"""Drawings of which one is made again from the same strings in another order."""
LIMITED_IN = 3
"""Drawings of which one is written within limits too, for the same reason."""
ALL = (*DETAIL_LAYERS, Layer.SCOPES)
SUMMED = {
    "task": Layer.HARDWARE,
    "hccl_task": Layer.COMMUNICATION,
    "communication_op": Layer.COMMUNICATION,
}
"""The layers whose sums are compared, by what draws them."""
_LIMITED = (
    *(("bytes", "coarsen"), ("events", "coarsen"), ("both", "coarsen")) * 2,
    *(("bytes", "split"), ("both", "split"), ("events", "error")),
)
"""Which limits there are, and what is done where they do not hold everything."""
_ABOUT = FileNotes((("io.tlexport.kind", Kind.DETAIL.value),))


@functools.lru_cache(maxsize=64)
def _options(args: Args, by_layer: bool, fit_way: str, **limits: int) -> ExportOptions:
    """What a file is written by; the same for many runs."""
    group_by = "layer" if by_layer else "rank"
    given: Mapping[str, Any] = {
        "output": None,
        "kind": "detail",
        "args": args,
        "group_by": group_by,
        "fit": fit_way,
    }
    return fill(ExportOptions, {**given, **(limits or {"limit": 0})})


class DrawingRun:
    """One run, which its number decides."""

    def __init__(self, number: int, directory: Path) -> None:
        random = Random(number)
        self._random = random
        shape = ExtremeShape(
            number,
            random.choice((1, 1, 2, 2, 3, 8)),
            random.choice((0.3, 0.6, 0.8, 0.9)),
            random.choice((0.2, 0.4, 0.6, 0.7)),
        )
        joins = random.randrange(JOINED_IN) == 0
        ranks = sorted(set(random.choices(RANKS, k=random.choice((1, 2, 3)) if joins else 1)))
        self._sources = [ExtremeSource(rank, shape) for rank in ranks]
        self._joins = joins
        layers = frozenset(ALL)
        if random.random() < 0.6:
            layers = frozenset(random.sample(ALL, random.choice((2, 3, 4, 5))))
        selected: dict[str, Any] = {"layers": [layer.value for layer in sorted(layers, key=_value)]}
        if random.random() < 0.08:
            selected["steps"] = random.choice(("0-3", "1-2", "1", str(LARGEST_ID)))
        if joins and random.random() < 0.3:
            selected["window"] = random.choice(("20%:70%", "0ns:1us", "1ns:9000000000s"))
        self._layers, self._whole = layers, len(selected) == 1
        self._args = random.choice((Args.ALL, Args.ALL, Args.DEFAULT, Args.NONE))
        self._merges_graphs = random.random() < 0.7
        self._directory = directory
        self._selection = Selection(**selected)
        self.drew = False
        self.files = 0
        """Files that were written and checked."""

    def run(self) -> None:
        """Draw the records, write them in full and within limits, and check what came.

        Raises:
            TimelineError: they are refused.
            BrokenPromise: what never may be happened.
        """
        random = self._random
        request = RankRequest(
            self._selection,
            options=DrawOptions(self._layers, self._merges_graphs),
            args=self._args,
            ranks=len(self._sources),
            target=self._directory / "drawn.pftrace",
        )
        drawn, records = self._drawn(request)
        by_layer = random.random() < 0.2
        whole = self._written(drawn, _options(self._args, by_layer, "coarsen"), ".pftrace")
        if whole is None:
            return
        self.drew = whole.totals.slices > 0
        if not self.drew and not whole.totals.samples:
            return
        if not self._joins and random.randrange(REORDERED_IN) == 0:
            self._reorder(drawn, records[0], request, by_layer)
        sums = self._sums(records)
        check_sums([whole.totals], sums)
        for by in (by_layer, not by_layer):
            suffix = random.choice((".pftrace", ".pftrace", ".pftrace.gz", ".json"))
            args = random.choice((Args.ALL, Args.DEFAULT, Args.NONE))
            other = self._written(drawn, _options(args, by, "coarsen"), suffix)
            if other is not None and suffix != ".json":
                check_sums([other.totals], sums)
        if random.randrange(LIMITED_IN) == 0:
            self._limit(drawn, whole, by_layer, random.choice(_LIMITED))

    def _sums(self, records: list[Records]) -> dict[str, list[int]]:
        """What is drawn of records as a whole, where all of a layer is."""
        if not self._whole:
            return {}
        known = {name for name, layer in SUMMED.items() if layer in self._layers}
        return {name: row for name, row in sums_of(records).items() if name in known}

    def _drawn(self, request: RankRequest) -> tuple[tuple[DrawnRank, ...], list[Records]]:
        """The drawn ranks, and their records as they were valid."""
        if not self._joins:
            (source,) = self._sources
            records = read_rank(source, request.read_request, request.operators)
            return (draw_rank_from_records(records, request),), [records]
        reading = ReadingOptions(jobs=1)
        with worker_pool_for(self._sources, reading, Silent()) as workers:
            joined = read_ranks(self._sources, request, workers, self._directory)
        return joined.ranks, [
            drop_invalid_rows(source.read(request.read_request)) for source in self._sources
        ]

    def _reorder(
        self,
        drawn: tuple[DrawnRank, ...],
        records: Records,
        request: RankRequest,
        by_layer: bool,
    ) -> None:
        """In which order strings were met does not show, in full or within a limit."""
        again = (draw_rank_from_records(with_strings_in_other_order(records), request),)
        limits: dict[str, int] = {}
        for _ in range(2):
            options = _options(self._args, by_layer, "coarsen", **limits)
            try:
                before = self._written(drawn, options, ".pftrace")
                now = self._written(again, options, ".pftrace")
            except LimitError:
                return
            if before is None or now is None or before.data != now.data:
                raise BrokenPromise("with strings in another order the bytes are others")
            limits = {"limit": max(1, len(before.data) * 2 // 3)}

    def _limit(
        self, drawn: tuple[DrawnRank, ...], whole: _Written, by_layer: bool, way: tuple[str, str]
    ) -> None:
        """Write within shares of what the whole takes, which may be too small for anything."""
        limit, fit_way = way
        share = self._random.choice((0.3, 0.6, 0.8, 0.95, 1.0))
        limits = {}
        if limit != "events":
            limits["limit"] = max(1, int(len(whole.data) * share))
        if limit != "bytes":
            limits["max_events"] = max(1, int(whole.elements * share))
        options = _options(self._args, by_layer, fit_way, **limits)
        try:
            part = self._written(drawn, options, ".pftrace")
        except LimitError:
            return
        if part is not None and fit_way == "coarsen":
            if part.kept.layers:
                rows = [resolution_row(layer) for layer in part.kept.layers]
                check_resolutions(rows, part.totals)
            check_same_rows(part.totals, whole.totals)

    def _written(
        self, drawn: tuple[DrawnRank, ...], options: ExportOptions, suffix: str
    ) -> _Written | None:
        """Write drawn ranks and check each file; what is in the last one, None without any."""
        target = self._directory / f"drawn{suffix}"
        self.files += 1
        written = fit(
            drawn, lambda _: (), options, target, format_of(target), lambda _: _ABOUT, 0, Silent()
        )
        found: _Written | None = None
        for part in written.parts:
            part.draft.publish(target)
            data = target.read_bytes()
            if len(data) != part.draft.size_bytes:
                raise BrokenPromise("another size is told than is there")
            if options.limit_bytes and len(data) > options.limit_bytes:
                raise BrokenPromise("the limit of bytes is exceeded")
            if options.most_events and part.cost.elements > options.most_events:
                raise BrokenPromise("the limit of events is exceeded")
            totals = _totals(data, suffix)
            _check_told(totals, part, limited=written.kept.limited_by is not None)
            found = _Written(totals, written.kept, data, int(part.cost.elements))
        return found


@dataclass(frozen=True)
class _Written:
    """A file: what it holds, what it keeps, its bytes, and how many elements are told."""

    totals: TraceTotals
    kept: Kept
    data: bytes
    elements: int


def _totals(data: bytes, suffix: str) -> TraceTotals:
    if suffix == ".json":
        return _json_totals(data)
    try:
        return decode_totals(gzip.decompress(data) if suffix.endswith(".gz") else data)
    except DamagedTraceError as error:
        raise BrokenPromise(str(error)) from error


def _check_told(found: TraceTotals, part: Part, *, limited: bool) -> None:
    """Check that a file holds what is told of it."""
    if found.slices != part.slices:
        raise BrokenPromise(f"{part.slices} slices are told, {found.slices} are there")
    ends = part.cost.elements - found.slices - found.samples
    if found.flows * 2 > ends or (not limited and found.flows * 2 != ends):
        raise BrokenPromise(f"{ends} ends of arrows are told, {found.flows} arrows are there")


def _value(layer: Layer) -> str:
    return layer.value


def _json_totals(data: bytes) -> TraceTotals:
    """What is counted of a JSON file; of its rows nothing."""
    phases = Counter(event["ph"] for event in json.loads(data)["traceEvents"])
    if phases["s"] != phases["f"]:
        raise BrokenPromise(f"{phases['s']} arrows begin and {phases['f']} end")
    return TraceTotals((), phases["X"], 0, phases["C"], phases["s"], (), {})


def sums_of(every: list[Records]) -> dict[str, list[int]]:
    """How many rows each layer has in valid records, and how long they are together."""
    wanted: dict[str, list[int]] = {}
    for records in every:
        for layer, table in (
            ("task", records.tasks),
            ("hccl_task", records.planes),
            ("communication_op", records.ops),
        ):
            sums = wanted.setdefault(layer, [0, 0])
            sums[0] += len(table)
            sums[1] += sum(table.end_ns.tolist()) - sum(table.start_ns.tolist())
    return wanted
