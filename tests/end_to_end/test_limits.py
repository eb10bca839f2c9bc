"""Proves that a file never exceeds its limit, covers everything, and says at which resolution."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from tests.support.random_intervals import EPOCH_NS
from tests.support.random_records import Sizes, random_records
from tests.support.row_totals import Row, counter_totals, row_totals, rows_of
from tests.support.trace_packets import attributes_of
from timeline.analysis.invalid_rows import drop_invalid_rows
from timeline.analysis.leading_detail import Leading
from timeline.analysis.selected_rank import DrawOptions
from timeline.cli.main import main
from timeline.columns.columns import Int64
from timeline.columns.strings import StringPool
from timeline.commands.export import export
from timeline.encoders.drafts import Draft, write_draft
from timeline.encoders.formats import FORMATS, format_of
from timeline.errors import LimitError
from timeline.fitting import writer
from timeline.fitting.fit import fit as fit_to_limit
from timeline.fitting.writer import FileNotes, Written
from timeline.layers import Layer
from timeline.options import DEFAULT_LIMIT_BYTES, ExportOptions, Fit
from timeline.progress import Silent
from timeline.ranks.rank_work import RankRequest, draw_rank_from_records
from timeline.records.tables import HostEvents, Records, Steps, Tasks
from timeline.reports.export_report import ExportReport
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind, Selection
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest
from timeline.tracks.drawn_rank import DrawnRank

SUFFIXES = tuple(form.suffix for form in FORMATS)
LEAST_LIMIT = 64 << 10
"""From here on a limit has to work for any profile."""
LEAST_SHARE = 0.7
"""A file that leaves something out is at least this share of its limit."""
MOST_WRITES = 4
"""The first writing, and three more to hit the limit."""
RUN: dict[str, Any] = {"ranks": 2, "steps": 20, "ops_per_step": 24, "planes": 4}
ONE_BYTE_LESS = 1.0
"""As a share of the exact size: one byte less than it."""


# -- exports, and what is loaded of them -------------------------------------------------------


@dataclass(frozen=True)
class Loaded:
    """A file of an export, in a trace processor."""

    path: Path
    processor: TraceProcessor

    @classmethod
    def of(cls, path: Path) -> Loaded:
        return cls(path, TraceProcessor.load(path.read_bytes()))

    @property
    def is_json(self) -> bool:
        return ".json" in self.path.suffixes

    @property
    def content(self) -> bytes:
        """The bytes of the file, unpacked."""
        data = self.path.read_bytes()
        return gzip.decompress(data) if self.path.suffix == ".gz" else data

    @property
    def attributes(self) -> dict[str, str]:
        """The facts that travel in the file."""
        if self.is_json:
            facts: dict[str, str] = json.loads(self.content)["otherData"]
            return facts
        return attributes_of(self.content)

    @property
    def zero_ns(self) -> int:
        """The moment that the trace processor's times count from."""
        return int(json.loads(self.content)["baseTimeNanoseconds"]) if self.is_json else 0

    @cached_property
    def slices(self) -> list[LoadedSlice]:
        """All slices but those of notes."""
        zero_ns = self.zero_ns
        rows = rows_of(self.processor, is_json=self.is_json)
        untyped = "args" if self.is_json else "debug"
        typed = "args" if self.is_json else "task"
        return [
            LoadedSlice(rows[track], name, start_ns + zero_ns, *own)
            for track, name, start_ns, *own in self.processor.rows(
                "SELECT track_id, name, ts, dur,"
                f" extract_arg(arg_set_id, '{typed}.task_id'),"
                f" extract_arg(arg_set_id, '{untyped}.busy_ns'),"
                " (SELECT count(*) FROM args WHERE args.arg_set_id = slice.arg_set_id)"
                " FROM slice"
            )
            if rows[track][0] != "Notes"
        ]

    def flows(self) -> int:
        ((count,),) = self.processor.rows("SELECT count(*) FROM flow")
        return int(count)


@dataclass(frozen=True)
class LoadedSlice:
    """One slice; busy_ns is None unless it stands for several."""

    row: Row
    name: str
    start_ns: int
    length_ns: int
    task_id: int | None
    busy_ns: int | None
    args: int

    @property
    def layer(self) -> str:
        return layer_of(self.row)


def layer_of(row: Row) -> str:
    """The layer whose resolution holds on a row; what is not named here is a layer of the host."""
    way = " ".join(row)
    for part, layer in (
        ("Step Trace", "step"),
        ("Steps, continued", "step"),
        ("Overlap Analysis", "overlap"),
        ("Ascend Hardware", "task"),
        ("Counters", "counters"),
        ("Not in this file", "note"),
        (" Plane ", "hccl_task"),
        ("Communication", "communication_op"),
    ):
        if part in way:
            return layer
    return "step" if len(set(row)) == 1 else "host_call"


@dataclass(frozen=True)
class Fitted:
    """An export under a limit, beside the exact file; writes has the size of each try."""

    limit: int
    report: ExportReport
    writes: tuple[int, ...]
    directory: Path
    exact: Loaded

    @property
    def size(self) -> int:
        (output,) = self.report.outputs
        return output.path.stat().st_size

    @cached_property
    def loaded(self) -> Loaded:
        (output,) = self.report.outputs
        return Loaded.of(output.path)


class Exporter:
    """Exports profiles into directories of their own; exact files are made once."""

    def __init__(self, shelf: ProfileShelf, factory: pytest.TempPathFactory) -> None:
        self._shelf = shelf
        self._factory = factory
        self._exact: dict[tuple[str, Kind, str], Loaded] = {}

    def exact(self, layout: str, kind: Kind, suffix: str) -> Loaded:
        """The whole profile in one file, whatever its size."""
        key = (layout, kind, suffix)
        if key not in self._exact:
            target = self._factory.mktemp("exact") / f"timeline{suffix}"
            self.export(layout, kind, target, 0, Fit.COARSEN)
            self._exact[key] = Loaded.of(target)
        return self._exact[key]

    def size(self, layout: str, kind: Kind, suffix: str) -> int:
        return self.exact(layout, kind, suffix).path.stat().st_size

    def fitted(self, layout: str, kind: Kind, suffix: str, limit: int, fit: Fit) -> Fitted:
        """An export under a limit."""
        directory = self._factory.mktemp("fitted")
        with counted_writes() as writes:
            report = self.export(layout, kind, directory / f"timeline{suffix}", limit, fit)
        return Fitted(limit, report, tuple(writes), directory, self.exact(layout, kind, suffix))

    def export(self, layout: str, kind: Kind, target: Path, limit: int, fit: Fit) -> ExportReport:
        return export(self.profile(layout), target, kind=kind, limit=limit, fit=fit)

    def profile(self, layout: str) -> Path:
        """A profile in a layout; "tiny" is one step of one rank."""
        if layout == "tiny":
            return self._shelf.get("torch-db", ranks=1, steps=1).path
        return self._shelf.get(layout, **RUN).path


@contextlib.contextmanager
def counted_writes() -> Iterator[list[int]]:
    """While it is open, the size of every file that is written in an attempt to fit."""
    sizes: list[int] = []

    def counted(*arguments: Any, **options: Any) -> Draft:
        draft = write_draft(*arguments, **options)
        sizes.append(draft.size_bytes)
        return draft

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "write_draft", counted)
        yield sizes


@pytest.fixture(scope="module")
def exporter(shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> Exporter:
    return Exporter(shelf, tmp_path_factory)


def limit_of(exporter: Exporter, layout: str, kind: Kind, suffix: str, share: float | int) -> int:
    """A share of the exact size, or a number of bytes."""
    size = exporter.size(layout, kind, suffix)
    return share if isinstance(share, int) else min(int(size * share), size - 1)


COARSENED = [
    *(
        ("torch-db", Kind.DETAIL, suffix, share)
        for suffix in SUFFIXES
        for share in (LEAST_LIMIT, 0.6, 0.9)
    ),
    *(("mindstudio", Kind.DETAIL, suffix, LEAST_LIMIT) for suffix in (".pftrace", ".json.gz")),
    ("mindstudio", Kind.DETAIL, ".json", 0.3),
    ("torch-db", Kind.SUMMARY, ".json", LEAST_LIMIT),
    ("mindstudio", Kind.SUMMARY, ".json", 0.6),
]


@pytest.fixture(
    scope="module",
    params=COARSENED,
    ids=lambda param: f"{param[0]}-{param[1].value}{param[2]}-{param[3]}",
)
def coarse(request: pytest.FixtureRequest, exporter: Exporter) -> Fitted:
    """An export that does not fit exactly, coarsened."""
    layout, kind, suffix, share = request.param
    limit = limit_of(exporter, layout, kind, suffix, share)
    assert limit < exporter.size(layout, kind, suffix), "what the run is made for"
    return exporter.fitted(layout, kind, suffix, limit, Fit.COARSEN)


# -- the size ----------------------------------------------------------------------------------


def test_the_file_keeps_its_limit_and_uses_it(coarse: Fitted) -> None:
    assert coarse.size <= coarse.limit
    assert coarse.size >= LEAST_SHARE * coarse.limit
    assert [output.size_bytes for output in coarse.report.outputs] == [coarse.size]
    assert coarse.report.limit_bytes == coarse.limit


def test_it_takes_no_more_than_three_tries_after_the_first(coarse: Fitted) -> None:
    assert len(coarse.writes) <= MOST_WRITES, coarse.writes
    assert coarse.size in coarse.writes


def test_no_other_file_is_left(coarse: Fitted) -> None:
    assert list(coarse.directory.iterdir()) == [coarse.report.outputs[0].path]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", ["torch-db", "mindstudio"])
def test_one_byte_too_few_costs_little(exporter: Exporter, layout: str, suffix: str) -> None:
    """Where almost everything fits, almost everything is there, and soon."""
    limit = limit_of(exporter, layout, Kind.DETAIL, suffix, ONE_BYTE_LESS)
    fitted = exporter.fitted(layout, Kind.DETAIL, suffix, limit, Fit.COARSEN)
    assert LEAST_SHARE * limit <= fitted.size <= limit
    assert len(fitted.writes) <= MOST_WRITES


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", ["torch-db", "mindstudio"])
@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("share", [1.0, 1.02])
def test_what_fits_exactly_is_exact(
    exporter: Exporter, layout: str, suffix: str, kind: Kind, share: float
) -> None:
    """The limit decides nothing as long as the exact file keeps it."""
    limit = int(exporter.size(layout, kind, suffix) * share)
    fitted = exporter.fitted(layout, kind, suffix, limit, Fit.COARSEN)
    assert fitted.report.resolutions == ()
    assert fitted.loaded.content == fitted.exact.content


# -- everything is there -----------------------------------------------------------------------


def test_it_loads_without_errors(coarse: Fitted) -> None:
    assert coarse.loaded.processor.import_errors() == []
    assert coarse.loaded.processor.rows("SELECT count(*) FROM slice WHERE dur < 0") == [(0,)]


def test_each_row_holds_all_its_records(coarse: Fitted) -> None:
    """Count, busy time, first start and last end of every row are those of the exact file."""
    is_json = coarse.loaded.is_json
    found = row_totals(coarse.loaded.processor, is_json=is_json)
    wanted = row_totals(coarse.exact.processor, is_json=is_json)
    assert {row: replace(own, drawn=0, gathered=0) for row, own in found.items()} == {
        row: replace(own, drawn=0) for row, own in wanted.items()
    }
    assert any(own.gathered for own in found.values())


def test_counters_keep_their_range_and_their_time(coarse: Fitted) -> None:
    """Least and greatest value to the digit; the first and the last sample within one bin."""
    is_json = coarse.loaded.is_json
    found = counter_totals(coarse.loaded.processor, is_json=is_json)
    wanted = counter_totals(coarse.exact.processor, is_json=is_json)
    assert found.keys() == wanted.keys()
    width_ns = widths(coarse.report).get("counters", 0)
    for row, own in found.items():
        assert (own.least, own.greatest) == (wanted[row].least, wanted[row].greatest)
        assert 0 <= own.first_ns - wanted[row].first_ns <= width_ns
        assert 0 <= wanted[row].last_ns - own.last_ns <= width_ns


def widths(report: ExportReport) -> dict[str, int]:
    """The resolution of each layer."""
    return {row.layer: row.resolution_ns for row in report.resolutions}


def test_long_slices_are_exact(coarse: Fitted) -> None:
    """Each slice of its layer's resolution or longer, with its name, time and args; none is new.

    Before the moment up to which a layer is finer, its finer resolution is enough.
    """
    rows = {row.layer: row for row in coarse.report.resolutions}
    drawn = Counter(own for own in coarse.loaded.slices if own.busy_ns is None)
    every = Counter(coarse.exact.slices)
    assert not drawn - every, "a slice that is no record"
    for own, count in every.items():
        resolution = rows[own.layer]
        until = resolution.finer_until_ns
        is_finer = until is not None and own.start_ns < until
        width_ns = resolution.finer_ns if is_finer else resolution.resolution_ns
        assert width_ns is not None
        if own.length_ns >= width_ns:
            assert drawn[own] == count


@pytest.mark.parametrize("layout", ["torch-db", "mindstudio"])
def test_steps_stay_exact_longest(exporter: Exporter, layout: str) -> None:
    """In the least limit that has to work, every step of every rank is there as it was."""
    fitted = exporter.fitted(layout, Kind.DETAIL, ".pftrace", LEAST_LIMIT, Fit.COARSEN)
    steps = [own for own in fitted.exact.slices if own.layer == "step"]
    assert len({own.name for own in steps if len(own.row) == 1}) == RUN["steps"]
    found = Counter(own for own in fitted.loaded.slices if own.layer == "step")
    assert found == Counter(steps)
    assert any(own.busy_ns is not None for own in fitted.loaded.slices), "tasks are gathered"


@pytest.mark.parametrize("layout", ["torch-db", "mindstudio"])
def test_sums_equal_the_records(exporter: Exporter, layout: str) -> None:
    """Not only those of the exact file: tasks, planes, ops and calls as the readers give them."""
    fitted = exporter.fitted(layout, Kind.DETAIL, ".pftrace", LEAST_LIMIT, Fit.COARSEN)
    found: dict[str, list[int]] = {}
    for row, own in row_totals(fitted.loaded.processor, is_json=False).items():
        sums = found.setdefault(layer_of(row), [0, 0])
        sums[0] += own.count
        sums[1] += own.busy_ns
    wanted: dict[str, list[int]] = {}
    for source in discover(exporter.profile(layout)).sources:
        records = drop_invalid_rows(source.read(ReadRequest(DETAIL_LAYERS)))
        for layer, table in (
            ("task", records.tasks),
            ("hccl_task", records.planes),
            ("communication_op", records.ops),
            ("host_call", records.host),
        ):
            sums = wanted.setdefault(layer, [0, 0])
            sums[0] += len(table)
            sums[1] += int((table.end_ns - table.start_ns).sum())
    assert {layer: found[layer] for layer in wanted} == wanted


# -- and what is not is said -------------------------------------------------------------------


def test_the_report_counts_what_was_drawn(coarse: Fitted) -> None:
    """Exact slices, gathered ones and those behind them, by layer, and arrows that lost an end."""
    is_json = coarse.loaded.is_json
    drawn: dict[str, list[int]] = {}
    for row, own in row_totals(coarse.loaded.processor, is_json=is_json).items():
        sums = drawn.setdefault(layer_of(row), [0, 0, 0])
        sums[0] += own.drawn - own.gathered
        sums[1] += own.count - (own.drawn - own.gathered)
        sums[2] += own.gathered
    for counter in counter_totals(coarse.loaded.processor, is_json=is_json).values():
        drawn.setdefault("counters", [0, 0, 0])[0] += counter.count
    for counter in counter_totals(coarse.exact.processor, is_json=is_json).values():
        drawn["counters"][1] += counter.count
    if "counters" in drawn:
        drawn["counters"][1] -= drawn["counters"][0]
    assert {
        row.layer: [row.exact, row.gathered, row.gathered_into] for row in coarse.report.resolutions
    } == drawn
    lost = sum(
        omission.rows for omission in coarse.report.omissions if "gathered" in omission.reason
    )
    assert coarse.loaded.flows() + lost == coarse.exact.flows()


def test_the_resolution_is_said_everywhere(coarse: Fitted) -> None:
    """In the report, in its JSON, on the terminal and in the file itself."""
    rows = coarse.report.resolutions
    assert all(row.resolution_ns & (row.resolution_ns - 1) == 0 for row in rows)
    assert any(row.resolution_ns and row.gathered for row in rows)
    in_json = json.loads(coarse.report.to_json())["resolution"]
    assert [(row["layer"], row["resolution_ns"], row["gathered"]) for row in in_json] == [
        (row.layer, row.resolution_ns, row.gathered) for row in rows
    ]
    spelled = [row.spelled() for row in rows]
    terminal = "\n".join(coarse.report.lines())
    assert all(line in terminal for line in spelled)
    assert coarse.loaded.attributes["io.tlexport.resolution"] == "; ".join(spelled)
    assert coarse.exact.attributes["io.tlexport.resolution"] == "exact"


def test_the_suggestion_is_exact(
    coarse: Fitted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As it is printed; where several steps fit, also in the same format within the same limit."""
    program, *words = shlex.split(coarse.report.suggestion)
    assert program == "tlexport"
    assert "--steps" in words
    assert f"exact: {coarse.report.suggestion}" in "\n".join(coarse.report.lines())
    monkeypatch.chdir(tmp_path)
    output = f"again{''.join(coarse.exact.path.suffixes)}"
    tries = [["-o", output, "--limit", str(coarse.limit)]]
    if coarse.limit < 2 * coarse.exact.path.stat().st_size / RUN["steps"]:
        tries.clear()
    for more in ([], *tries):
        assert main([*words, *more, "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["resolution"] == []
        assert not any(omission["loss"] for omission in report["omitted"])


# -- limits that are too small, and that forbid ------------------------------------------------


@pytest.mark.parametrize(
    ("layout", "kind", "suffix", "fit"),
    [
        ("torch-db", Kind.DETAIL, ".pftrace", Fit.COARSEN),
        ("torch-db", Kind.DETAIL, ".json", Fit.COARSEN),
        ("mindstudio", Kind.SUMMARY, ".pftrace.gz", Fit.COARSEN),
        ("torch-db", Kind.DETAIL, ".pftrace", Fit.STEPS),
        ("torch-db", Kind.DETAIL, ".json.gz", Fit.STEPS),
        ("torch-db", Kind.SUMMARY, ".pftrace", Fit.STEPS),
        ("tiny", Kind.SUMMARY, ".pftrace", Fit.COARSEN),
        ("tiny", Kind.SUMMARY, ".json", Fit.STEPS),
    ],
)
def test_a_limit_that_is_too_small_names_the_smallest_that_works(
    exporter: Exporter, tmp_path: Path, layout: str, kind: Kind, suffix: str, fit: Fit
) -> None:
    """That very number of bytes works, and one byte less does not."""
    target = tmp_path / f"timeline{suffix}"
    with pytest.raises(LimitError) as caught:
        exporter.export(layout, kind, target, 500, fit)
    least = named_bytes(caught.value)
    assert least <= exporter.size(layout, kind, suffix), "the exact file would do"
    with pytest.raises(LimitError) as again:
        exporter.export(layout, kind, target, least - 1, fit)
    assert named_bytes(again.value) == least
    assert list(tmp_path.iterdir()) == []
    exporter.export(layout, kind, target, least, fit)
    assert target.stat().st_size <= least
    assert list(tmp_path.iterdir()) == [target]


def named_bytes(error: LimitError) -> int:
    (number,) = re.findall(r"smallest that works is (\d+) bytes", str(error))
    return int(number)


def test_limits_below_what_must_work_are_kept_too(exporter: Exporter) -> None:
    """From the smallest that works up, whatever the limit."""
    for limit in (8_500, 9_500, 14_000, 25_000, 40_000):
        fitted = exporter.fitted("torch-db", Kind.DETAIL, ".pftrace", limit, Fit.COARSEN)
        assert fitted.size <= limit
        assert len(fitted.writes) <= MOST_WRITES
        own = row_totals(fitted.loaded.processor, is_json=False)
        wanted = row_totals(fitted.exact.processor, is_json=False)
        assert {row: (one.count, one.busy_ns) for row, one in own.items()} == {
            row: (one.count, one.busy_ns) for row, one in wanted.items()
        }


@pytest.mark.parametrize(
    "words", [["--strict"], ["--fit", "error"], ["--fit", "steps", "--strict"]]
)
def test_a_loss_that_is_forbidden_exits_with_4(
    exporter: Exporter, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """Then nothing is written; when everything fits, the same command writes it."""
    target = tmp_path / "timeline.pftrace"
    size = exporter.size("torch-db", Kind.DETAIL, ".pftrace")
    command = [str(exporter.profile("torch-db")), "--kind", "detail", "-o", str(target), *words]
    assert main([*command, "--limit", str(size - 1)]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("tlexport: ")
    assert list(tmp_path.iterdir()) == []
    assert main([*command, "--limit", str(size)]) == 0
    assert list(tmp_path.iterdir()) == [target]


# -- the other ways to fit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "share"),
    [(".pftrace", LEAST_LIMIT), (".pftrace.gz", 0.9), (".json", 0.3), (".json.gz", LEAST_LIMIT)],
)
def test_leading_steps_keep_the_limit(exporter: Exporter, suffix: str, share: float) -> None:
    """The summary of all steps and the detail of as many as fit; what is left out is counted."""
    limit = limit_of(exporter, "torch-db", Kind.DETAIL, suffix, share)
    fitted = exporter.fitted("torch-db", Kind.DETAIL, suffix, limit, Fit.STEPS)
    assert fitted.size <= limit
    assert len(fitted.writes) <= MOST_WRITES
    assert list(fitted.directory.iterdir()) == [fitted.report.outputs[0].path]
    assert fitted.loaded.processor.import_errors() == []
    kept = fitted.report.outputs[0].steps
    assert 0 < len(kept) < RUN["steps"]
    assert kept == fitted.report.steps[: len(kept)]
    for layer in ("step", "overlap"):
        assert Counter(own for own in fitted.loaded.slices if own.layer == layer) == Counter(
            own for own in fitted.exact.slices if own.layer == layer
        )
    assert sum(own.rows for own in fitted.report.omissions if own.loss) > 0
    assert shlex.split(fitted.report.suggestion)[0] == "tlexport"


@pytest.mark.parametrize(("suffix", "share"), [(".pftrace", LEAST_LIMIT), (".json.gz", 0.3)])
def test_parts_are_not_written_over_and_over(exporter: Exporter, suffix: str, share: float) -> None:
    """All that is written in all tries is at most four times what is kept."""
    limit = limit_of(exporter, "torch-db", Kind.DETAIL, suffix, share)
    fitted = exporter.fitted("torch-db", Kind.DETAIL, suffix, limit, Fit.SPLIT)
    sizes = [output.size_bytes for output in fitted.report.outputs]
    assert len(sizes) > 1
    assert max(sizes) <= limit
    assert sum(fitted.writes) <= MOST_WRITES * sum(sizes)


# -- profiles of any shape ---------------------------------------------------------------------


def shares_of(
    records: Sequence[Records], layers: frozenset[Layer], leading: Leading | None = None
) -> list[DrawnRank]:
    """What each rank adds to the picture."""
    request = RankRequest(Selection(layers=layers), options=DrawOptions(layers), leading=leading)
    return [draw_rank_from_records(own, request) for own in records]


def never_again(_leading: Leading) -> list[DrawnRank]:
    raise AssertionError("only --fit steps draws again")


def written(
    records: Sequence[Records], target: Path, limit: int, fit: Fit = Fit.COARSEN
) -> tuple[Written, list[int]]:
    """The detail of records, fitted by the code behind an export; and the size of each try."""
    layers = DETAIL_LAYERS
    options = ExportOptions(kind=Kind.DETAIL, output=target, limit_bytes=limit, fit=fit)
    with counted_writes() as writes:
        made = fit_to_limit(
            shares_of(records, layers),
            lambda leading: shares_of(records, layers, leading),
            options,
            target,
            format_of(target),
            lambda *_: FileNotes((("io.tlexport.kind", "detail"),)),
            None,
            Silent(),
        )
    return made, writes


REALISTIC = {
    "tasks": Sizes(steps=10, tasks=1_000, ops=0, calls=0, samples=0),
    "many streams and calls": Sizes(steps=10, tasks=300, ops=5, planes=8, calls=400, samples=100),
    "counters": Sizes(steps=5, tasks=50, calls=5, samples=3_000),
    "planes": Sizes(steps=10, tasks=50, ops=30, planes=16, calls=10),
    "many names": Sizes(steps=10, tasks=600, names=5_000),
    "one step": Sizes(steps=1, tasks=8_000, calls=800),
    "many steps": Sizes(steps=400, tasks=4, ops=1, calls=2, samples=1),
    "short calls": Sizes(steps=5, tasks=20, calls=2_000, task_ns=1_000_000),
}
SHARES = (0.3, 0.6, 0.8, 0.95, ONE_BYTE_LESS)


@pytest.mark.parametrize(
    ("shape", "suffix"),
    [(shape, ".pftrace") for shape in REALISTIC]
    + [("many streams and calls", ".json.gz"), ("planes", ".json"), ("tasks", ".pftrace.gz")],
)
def test_random_profiles_keep_limits_and_use_them(tmp_path: Path, shape: str, suffix: str) -> None:
    """Durations, gaps, names and ids are random: nothing repeats, so nothing packs by luck."""
    keeps_limits([random_records(0, REALISTIC[shape])], tmp_path / f"timeline{suffix}")


SMALL = Sizes(steps=3, tasks=300, ops=2, planes=1, calls=20, samples=10, names=40, streams=2)


@pytest.mark.parametrize(("ranks", "limit"), [(8, 64), (24, 64), (24, 128), (48, 64), (56, 64)])
def test_many_small_ranks_use_small_limits(tmp_path: Path, ranks: int, limit: int) -> None:
    """Hundreds of short tracks: what a track costs counts for as much as what is on it."""
    records = [random_records(seed, SMALL) for seed in range(ranks)]
    made, writes = written(records, tmp_path / "timeline.pftrace", limit << 10)
    (part,) = made.parts
    assert LEAST_SHARE * (limit << 10) <= part.draft.size_bytes <= limit << 10
    assert len(writes) <= MOST_WRITES
    made.discard()


def keeps_limits(records: Sequence[Records], target: Path) -> None:
    """Try shares of the exact size; fail with all that miss the limit, its use or the tries."""
    exact, _ = written(records, target, 0)
    exact.discard()
    (size,) = (part.draft.size_bytes for part in exact.parts)
    misses = []
    for share in SHARES:
        limit = min(int(size * share), size - 1)
        if limit < LEAST_LIMIT:
            continue
        made, writes = written(records, target, limit)
        made.discard()
        (kept,) = (part.draft.size_bytes for part in made.parts)
        if not LEAST_SHARE * limit <= kept <= limit or len(writes) > MOST_WRITES:
            misses.append((share, [round(one / limit, 2) for one in writes], made.drawn_layers))
    assert size > LEAST_LIMIT, "what the shape is made for"
    assert not misses
    assert list(target.parent.iterdir()) == []


def dense(shape: str) -> tuple[Int64, Int64]:
    """Lengths and gaps of tasks that gathering first makes larger, before it makes them fewer."""
    random, count = np.random.default_rng(5), 12_000
    if shape == "back to back":
        return random.integers(1_000, 3_000, count), np.zeros(count, np.int64)
    idle = random.random(count) < 0.002
    gap_ns = np.where(idle, random.integers(10**6, 5 * 10**7, count), random.integers(0, 50, count))
    return random.integers(20, 200, count), gap_ns


@pytest.mark.parametrize("shape", ["back to back", "in bursts"])
@pytest.mark.parametrize("layer", ["tasks", "calls"])
def test_dense_profiles_keep_limits_and_use_them(tmp_path: Path, shape: str, layer: str) -> None:
    """Many slices of about one length with hardly a gap: a few powers decide about all of them."""
    records = rows_of_tasks(*dense(shape))
    if layer == "calls":
        records = as_calls(records)
    keeps_limits([records], tmp_path / "timeline.pftrace")


def rows_of_tasks(length_ns: Int64, gap_ns: Int64) -> Records:
    """Tasks of one stream with random names, in ten steps."""
    random, count, strings = np.random.default_rng(6), len(length_ns), StringPool()
    end_ns = EPOCH_NS + np.cumsum(length_ns + gap_ns)
    names = strings.codes(f"op_{number}" for number in range(200))
    which = random.integers(0, len(names), count)
    bounds = np.linspace(EPOCH_NS, int(end_ns[-1]) + 1, 11).astype(np.int64)
    tasks = Tasks.of(
        count,
        {
            "start_ns": end_ns - length_ns,
            "end_ns": end_ns,
            "stream": np.full(count, 2),
            "task": np.arange(count) % (1 << 16),
            "name": names[which],
            "op_type": names[which % 7],
            "task_type": names[which % 3],
            "input_shapes": names[which % 50],
            "compute": np.ones(count, np.bool_),
            "graph": np.full(count, 1),
        },
    )
    steps = Steps.of(
        10,
        {
            "start_ns": bounds[:-1],
            "end_ns": bounds[1:],
            "graph": np.ones(10),
            "iteration": np.arange(1, 11),
        },
    )
    return Records(0, strings, tasks=tasks, steps=steps)


def as_calls(records: Records) -> Records:
    """The same as calls on three threads, with few tasks beside them."""
    tasks = records.tasks
    host = HostEvents.of(
        len(tasks),
        {
            "start_ns": tasks.start_ns,
            "end_ns": tasks.end_ns,
            "layer": np.full(len(tasks), records.strings.code("Python")),
            "thread": np.random.default_rng(7).integers(0, 3, len(tasks)),
            "name": tasks.name,
        },
    )
    return replace(records, host=host, tasks=tasks.take(np.arange(0, len(tasks), 100)))


@st.composite
def small_sizes(draw: st.DrawFn) -> Sizes:
    return Sizes(
        steps=draw(st.integers(1, 6)),
        tasks=draw(st.integers(1, 120)),
        ops=draw(st.integers(0, 3)),
        planes=draw(st.integers(0, 3)),
        calls=draw(st.integers(0, 60)),
        samples=draw(st.integers(0, 40)),
        names=draw(st.integers(1, 30)),
        streams=draw(st.integers(1, 4)),
        task_ns=draw(st.sampled_from([20, 9_000, 3_000_000])),
    )


@given(
    small_sizes(),
    st.integers(1, 1_000_000),
    st.floats(0.02, 1.1),
    st.sampled_from(SUFFIXES),
    st.sampled_from([Fit.COARSEN, Fit.STEPS, Fit.SPLIT]),
)
@settings(max_examples=40)
def test_any_limit_is_kept_or_refused(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: Sizes,
    seed: int,
    share: float,
    suffix: str,
    fit: Fit,
) -> None:
    """However small; a refusal names a limit that then works. Nothing is left of any try."""
    directory = tmp_path_factory.mktemp("any")
    target = directory / f"timeline{suffix}"

    def made(limit: int) -> list[int]:
        result, _ = written([random_records(0, sizes, seed)], target, limit, fit)
        result.discard()
        return [part.draft.size_bytes for part in result.parts]

    (size,) = made(0)
    limit = max(1, int(size * share))
    try:
        kept = made(limit)
    except LimitError as error:
        assert list(directory.iterdir()) == []
        limit = int(re.findall(r"(\d+) bytes", str(error))[-1])
        kept = made(limit)
    assert max(kept) <= limit
    assert list(directory.iterdir()) == []


# -- large profiles ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layers",
    [
        pytest.param(frozenset({Layer.HARDWARE}), id="tasks"),
        pytest.param(DETAIL_LAYERS, id="with steps and overlap"),
    ],
)
def test_a_million_tasks_fit_exactly(tmp_path: Path, layers: frozenset[Layer]) -> None:
    """With their default args in 20 MB: every slice is one task, none is gathered."""
    sizes = Sizes(steps=100, tasks=10_000, ops=0, planes=0, calls=0, samples=0)
    records = random_records(0, sizes)
    assert len(records.tasks) == 1_000_000
    target = tmp_path / "timeline.pftrace"
    made = fit_to_limit(
        shares_of([records], layers),
        never_again,
        ExportOptions(kind=Kind.DETAIL, output=target),
        target,
        format_of(target),
        lambda *_: FileNotes(),
        None,
        Silent(),
    )
    made.discard()
    (part,) = made.parts
    assert part.draft.size_bytes <= DEFAULT_LIMIT_BYTES == 20 * 1024 * 1024
    assert made.drawn_layers == ()
    assert part.slices >= len(records.tasks)
    assert part.draft.size_bytes > 8 * len(records.tasks), "args are packed, not dropped"


def test_the_summary_of_many_ranks_fits_and_loads(tmp_path: Path) -> None:
    """10,000 ranks x 10 steps in 20 MB; here a tenth of both, unless TLEXPORT_RANKS says more."""
    ranks = int(os.environ.get("TLEXPORT_RANKS", "1000"))
    limit = DEFAULT_LIMIT_BYTES * ranks // 10_000
    sizes = Sizes(
        tasks=20, ops=2, planes=0, calls=0, samples=0, names=20, streams=1, task_ns=300_000
    )
    records = [random_records(rank, sizes) for rank in range(ranks)]
    target = tmp_path / "timeline.pftrace"
    with counted_writes() as writes:
        made = fit_to_limit(
            shares_of(records, SUMMARY_LAYERS),
            never_again,
            ExportOptions(kind=Kind.SUMMARY, output=target, limit_bytes=limit),
            target,
            format_of(target),
            lambda *_: FileNotes(),
            None,
            Silent(),
        )
    made.publish()
    size = target.stat().st_size
    assert LEAST_SHARE * limit <= size <= limit
    assert len(writes) <= MOST_WRITES
    resolution = {own.layer: own for own in made.drawn_layers}
    assert resolution["step"].resolution.width_ns == 0, "steps are exact"
    loaded = Loaded.of(target)
    assert loaded.processor.import_errors() == []
    totals = row_totals(loaded.processor, is_json=False)
    iterations = [own for row, own in totals.items() if row[-1] == "Iterations"]
    assert len(iterations) == ranks
    assert all(own.count == 3 * sizes.steps for own in iterations)
    computing = sum(own.busy_ns for row, own in totals.items() if row[-1] == "Computing")
    assert computing == sum(
        int((own.tasks.end_ns - own.tasks.start_ns).sum()) for own in records
    ), "tasks of one stream do not overlap, so computing is their sum"
