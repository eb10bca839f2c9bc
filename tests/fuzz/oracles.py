"""What every export promises, checked on its report and on its files as they are loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from tests.fuzz.promises import BrokenPromise
from tests.support.limited_exports import LEAST_LIMIT, LEAST_SHARE, Loaded
from tests.support.row_totals import TraceTotals
from timeline.reports.export_report import ExportReport
from timeline.reports.report_rows import OutputFile, ResolutionRow

FEW_MERGED = 32
"""So few slices may take what a name of megabytes takes, so that no resolution lies between."""


@dataclass(frozen=True)
class LoadedExport:
    """An export's files in the trace processor, with what was counted of each."""

    report: ExportReport
    files: tuple[Loaded, ...]
    totals: tuple[TraceTotals, ...]

    @property
    def slices(self) -> int:
        """How many slices are drawn in all files."""
        return sum(output.slices for output in self.report.outputs)


def load(report: ExportReport) -> LoadedExport:
    """Load all files of an export.

    Raises:
        BrokenPromise: the trace processor drops something of one, or counts other elements than
            the report tells.
    """
    files = tuple(Loaded.of(output.path) for output in report.outputs)
    totals = tuple(one.totals for one in files)
    for output, found in zip(report.outputs, totals, strict=True):
        _check_loaded(output, found, limited=report.limited_by is not None)
    return LoadedExport(report, files, totals)


def _promise(kept: bool, broken: str) -> None:
    if not kept:
        raise BrokenPromise(broken)


def _check_loaded(output: OutputFile, found: TraceTotals, *, limited: bool) -> None:
    _promise(not found.errors, f"the trace processor says {found.errors}")
    _promise(not found.unended, f"{found.unended} slices do not end")
    _promise(
        found.slices == output.slices,
        f"{output.slices} slices are told, {found.slices} are loaded",
    )
    ends = output.elements - found.slices - found.samples
    # Where slices are merged while a file is written, ends of lost arrows may be left in it.
    arrows = found.flows
    exact = not limited and arrows * 2 == ends
    _promise(
        exact or (limited and arrows * 2 <= ends),
        f"{ends} ends of arrows are told, {arrows} arrows are loaded, {found.samples} samples",
    )
    size = output.path.stat().st_size
    _promise(size == output.size_bytes, f"{output.size_bytes} bytes are told, {size} are there")


def check_export(made: LoadedExport, *, selects: bool = False) -> None:
    """Check what holds of any export: limits, the parts of time, and what the report adds up to.

    selects: whether steps or a window are selected, between which time is in no part.

    Raises:
        BrokenPromise: something of that does not.
    """
    report = made.report
    for output in report.outputs:
        if report.limit_bytes:
            _promise(output.size_bytes <= report.limit_bytes, "the limit of bytes is exceeded")
        if report.max_events:
            _promise(output.elements <= report.max_events, "the limit of events is exceeded")
    for row in report.figures.in_json()["overlap"]:
        numbers = [row[f"{name}_ns"] for name in ("computing", "communication", "not_overlapped")]
        free_ns, idle_ns = row["free_ns"], row["idle_ns"]
        numbers.append(free_ns)
        _promise(min(one or 0 for one in numbers) >= 0, f"a part of time is negative: {row}")
        _promise((free_ns is None) <= (idle_ns is None), f"idle of unknown free: {row}")
        if free_ns is not None and idle_ns is not None:
            free = idle_ns + (row["copies_ns"] or 0) + (row["outside_ns"] or 0)
            _promise(free == free_ns, f"copies, outside and idle are not free: {row}")
        alone, all_ns = row["not_overlapped_ns"] or 0, row["communication_ns"] or 0
        _promise(alone <= all_ns, f"more is not overlapped: {row}")
    if len(made.files) == 1 and not report.resolutions:
        _check_parts_of_time(made, selects=selects)
    if report.resolutions and len(made.files) == 1:
        check_resolutions(report.resolutions, made.totals[0])


_PARTS = {
    "Computing": "computing_ns",
    "Exposed communication": "not_overlapped_ns",
    "Free": "free_ns",
}


def _check_parts_of_time(made: LoadedExport, *, selects: bool) -> None:
    """The rows of overlap of each rank are as long as the report says, and leave no gap."""
    rows = made.totals[0].rows
    if made.files[0].is_json or made.report.by_layer:
        return
    # Of ranks without tasks the parts are drawn step by step, from tables.
    filed = {one.rank for one in made.report.ranks if not one.tasks}
    for told in made.report.figures.overlap.to_dicts():
        rank = told["rank"]
        if rank in filed:
            continue
        drawn = {
            name: rows[way]
            for name in _PARTS
            if (way := (f"Rank {rank}", "Overlap Analysis", name)) in rows
        }
        if not drawn:
            continue
        for name, key in _PARTS.items():
            length = drawn[name].busy_ns if name in drawn else 0
            _promise(length == told[key], f"rank {rank}: {name} is {length}, told {told}")
        total = sum(one.busy_ns for one in drawn.values())
        span = max(one.last_ns for one in drawn.values()) - min(
            one.first_ns for one in drawn.values()
        )
        _promise(selects or total == span, f"rank {rank}: its parts are {total} ns of {span} ns")


def check_resolutions(rows: Sequence[ResolutionRow], totals: TraceTotals) -> None:
    """Check that exact slices, merged ones and those they became, by layer, are those drawn.

    Raises:
        BrokenPromise: others are told.
    """
    drawn: dict[str, list[int]] = {}
    for layer, total in totals.layers.items():
        exact = total.drawn - total.merged
        drawn[layer] = [exact, total.count - exact + total.continued, total.merged]
    for counter in totals.counters.values():
        drawn.setdefault("counters", [0, 0, 0])[0] += counter.count
    told = {row.layer: [row.exact, row.merged, row.merged_into] for row in rows}
    if "counters" in told:
        told["counters"][1] = drawn.setdefault("counters", [0, 0, 0])[1]
    _promise(told == drawn, f"resolutions are {drawn}, told {told}")


def check_limited(made: LoadedExport, exact: LoadedExport) -> None:
    """Check an export that merges slices against the exact one of the same selection.

    Raises:
        BrokenPromise: a row stands for other slices than in the exact file, or a limit is not used.
    """
    if len(made.files) != 1:
        return
    check_same_rows(made.totals[0], exact.totals[0])
    report = made.report
    (output,) = report.outputs
    merged = sum(row.merged for row in report.resolutions)
    if report.limited_by == "bytes" and report.limit_bytes >= LEAST_LIMIT and merged > FEW_MERGED:
        share = output.size_bytes / report.limit_bytes
        _promise(share >= LEAST_SHARE, f"of the limit of bytes {share:.2f} is used")


def check_same_rows(merged: TraceTotals, exact: TraceTotals) -> None:
    """Check that each row stands for the same, whatever is merged.

    Raises:
        BrokenPromise: one stands for other records, or another time.
    """
    plain = {row: replace(one, drawn=0, merged=0) for row, one in merged.rows.items()}
    whole = {row: replace(one, drawn=0, merged=0) for row, one in exact.rows.items()}
    for row in whole.keys() | plain.keys():
        _promise(
            plain.get(row) == whole.get(row),
            f"row {row} holds {plain.get(row)}, the exact one {whole.get(row)}",
        )


def check_sums(every: Iterable[TraceTotals], wanted: Mapping[str, Sequence[int]]) -> None:
    """Check how many records each layer draws in files, and how long they take together, in ns.

    Raises:
        BrokenPromise: they are others.
    """
    found: dict[str, list[int]] = {}
    for totals in every:
        for layer, total in totals.layers.items():
            sums = found.setdefault(layer, [0, 0])
            sums[0] += total.count
            sums[1] += total.busy_ns
    for layer, rows in wanted.items():
        drawn = found.get(layer, [0, 0])
        _promise(list(rows) == drawn, f"{layer}: {drawn} are drawn of {list(rows)}")


def written(report: ExportReport) -> bytes:
    """Return the bytes of all files of an export."""
    return b"".join(output.path.read_bytes() for output in report.outputs)


def tree_hash(root: Path) -> str:
    """The names and contents of everything below a directory."""
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        digest.update(f"{path.relative_to(root)}\0".encode(errors="surrogateescape"))
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def check_directory(directory: Path, expected: Sequence[Path] = ()) -> None:
    """Check that a directory holds nothing but what was asked for.

    Raises:
        BrokenPromise: something was left there.
    """
    left = sorted(path.name for path in directory.iterdir() if path not in expected)
    _promise(not left, f"left behind: {left}")
