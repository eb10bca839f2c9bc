"""Short runs from extreme records on: drawing, fitting and encoding, and decoding of what came.

There is no profile, report or trace processor, and next to no rows: so many runs as these are no
others. What they check of a file, `tests/support/decoded_trace.py` decodes.
"""

from __future__ import annotations

import functools
import gzip
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.oracles import check_resolutions, check_same_rows, check_sums
from tests.fuzz.promises import BrokenPromise
from tests.support.decoded_trace import DamagedTraceError, decode_totals
from tests.support.extreme_records import ExtremeShape, ExtremeSource
from tests.support.row_totals import TraceTotals
from timeline.analysis.invalid_rows import drop_invalid_rows
from timeline.analysis.selected_rank import DrawOptions
from timeline.commands.results import resolution_row
from timeline.declarations import fill
from timeline.encoders.formats import format_of
from timeline.errors import TimelineError
from timeline.fitting.fit import fit
from timeline.fitting.writer import FileNotes, Kept, Written
from timeline.layers import Layer
from timeline.options import Args, ExportOptions, ReadingOptions
from timeline.progress import Silent
from timeline.ranges import LARGEST_ID
from timeline.ranks.rank_records import read_rank
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.ranks.read_ranks import read_ranks
from timeline.ranks.workers import worker_pool_for
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS, Kind, Selection
from timeline.tracks.rank_tracks import DrawnRank

__all__ = ["RANKS", "DrawingRun", "sums_of"]

RANKS = (0, 0, 0, 1, (1 << 16) - 1, 1 << 31, 1 << 53, LARGEST_ID)
JOINED_IN = 16
"""Runs of which one joins ranks, which takes as long as several of others."""
LIMITED_IN = 5
ALL = (*DETAIL_LAYERS, Layer.SCOPES)
SUMMED = {
    "task": Layer.HARDWARE,
    "hccl_task": Layer.COMMUNICATION,
    "communication_op": Layer.COMMUNICATION,
}
"""The layers whose sums are compared, by what draws them."""
_ABOUT = FileNotes((("io.tlexport.kind", Kind.DETAIL.value),))


@functools.cache
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
        self._by_layer = random.random() < 0.2
        self._merges_graphs = random.random() < 0.7
        suffix = random.choice((*(".pftrace",) * 10, ".pftrace.gz", ".json"))
        self._target = directory / f"drawn{suffix}"
        self._selection = Selection(**selected)
        self.drew = False
        self.slices = 0

    def run(self) -> None:
        """Draw the records, write them in full and perhaps within a limit, and check what came.

        Raises:
            TimelineError: they are refused.
            BrokenPromise: what never may be happened.
        """
        request = RankRequest(
            self._selection,
            options=DrawOptions(self._layers, self._merges_graphs),
            args=self._args,
            ranks=len(self._sources),
            target=self._target,
        )
        drawn, records = self._drawn(request)
        whole, kept, size_bytes, elements = self._written(
            drawn, _options(self._args, self._by_layer, "coarsen")
        )
        if kept is None or whole is None:
            return
        self.drew = whole.slices > 0
        if self._whole and not self._is_json:
            sums = sums_of(records)
            known = {name for name, layer in SUMMED.items() if layer in self._layers}
            check_sums([whole], {name: row for name, row in sums.items() if name in known})
        if self._random.randrange(LIMITED_IN) == 0:
            self._fit(drawn, whole, size_bytes, elements)

    @property
    def _is_json(self) -> bool:
        return self._target.suffix == ".json"

    def _drawn(self, request: RankRequest) -> tuple[tuple[DrawnRank, ...], list[Records]]:
        """The drawn ranks, and their records as they were valid."""
        if not self._joins:
            (source,) = self._sources
            records = read_rank(source, request.read_request, request.operators)
            return (draw_rank_from_records(records, request),), [records]
        reading = ReadingOptions(jobs=1)
        with worker_pool_for(self._sources, reading, Silent()) as workers:
            joined = read_ranks(self._sources, request, workers, self._target.parent)
        return joined.ranks, [
            drop_invalid_rows(source.read(request.read_request)) for source in self._sources
        ]

    def _fit(
        self, drawn: tuple[DrawnRank, ...], whole: TraceTotals, size_bytes: int, elements: int
    ) -> None:
        random = self._random
        share = random.choice((0.3, 0.6, 0.8, 0.95, 1.0))
        limits = {}
        if random.random() < 0.7:
            limits["limit"] = max(1, int(size_bytes * share))
        if not limits or random.random() < 0.3:
            limits["max_events"] = max(1, int(elements * share))
        way = random.choice(("coarsen", "coarsen", "coarsen", "split", "error"))
        options = _options(self._args, self._by_layer, way, **limits)
        try:
            part, kept, *_ = self._written(drawn, options)
        except TimelineError:
            return
        if part is not None and kept is not None and way == "coarsen" and not self._is_json:
            if kept.layers:
                check_resolutions([resolution_row(layer) for layer in kept.layers], part)
            check_same_rows(part, whole)

    def _written(
        self, drawn: tuple[DrawnRank, ...], options: ExportOptions
    ) -> tuple[TraceTotals | None, Kept | None, int, int]:
        """Write drawn ranks; what the last file holds, what it keeps, its bytes and elements."""
        form = format_of(self._target)
        written = fit(
            drawn, lambda _: (), options, self._target, form, lambda _: _ABOUT, 0, Silent()
        )
        totals, size_bytes, elements = None, 0, 0
        for part in written.parts:
            part.draft.publish(self._target)
            data = self._target.read_bytes()
            size_bytes, elements = len(data), part.elements
            totals = self._checked(data, part.slices, elements, written)
            if size_bytes != part.draft.size_bytes:
                raise BrokenPromise("another size is told than is there")
            if options.limit_bytes and size_bytes > options.limit_bytes:
                raise BrokenPromise("the limit of bytes is exceeded")
            if options.most_events and elements > options.most_events:
                raise BrokenPromise("the limit of events is exceeded")
        return totals, written.kept, size_bytes, elements

    def _checked(self, data: bytes, slices: int, elements: int, written: Written) -> TraceTotals:
        """Check that a file holds what is told of it."""
        data = gzip.decompress(data) if self._target.suffix == ".gz" else data
        try:
            found = _json_totals(data) if self._is_json else decode_totals(data)
        except DamagedTraceError as error:
            raise BrokenPromise(str(error)) from error
        ends = elements - found.slices - found.samples
        if found.slices != slices:
            raise BrokenPromise(f"{slices} slices are told, {found.slices} are there")
        limited = written.kept.limited_by is not None
        if found.flows * 2 > ends or (not limited and found.flows * 2 != ends):
            raise BrokenPromise(f"{ends} ends of arrows are told, {found.flows} arrows are there")
        return found


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
