"""Proves that a file never exceeds its limit, covers everything, and says at which resolution."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from simulator.model import Run
from tests.fuzz.oracles import check_resolutions, check_same_rows
from tests.support.limited_exports import (
    LEAST_LIMIT,
    LEAST_SHARE,
    MOST_WRITES,
    ONE_BYTE_LESS,
    SUFFIXES,
    Loaded,
    counted_writes,
)
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main
from timeline.commands.export import export
from timeline.errors import LimitError
from timeline.options import Fit
from timeline.reports.export_report import ExportReport
from timeline.selection import Kind

pytestmark = pytest.mark.sweep

RUN: dict[str, Any] = {"ranks": 2, "steps": 20, "ops_per_step": 24, "planes": 4}
# -- exports, and what is loaded of them -------------------------------------------------------


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

    @property
    def run(self) -> Run:
        return self._shelf.get("torch-db", **RUN).run

    def profile(self, layout: str) -> Path:
        """A profile in a layout; "tiny" is one step of one rank."""
        if layout == "tiny":
            return self._shelf.get("torch-db", ranks=1, steps=1).path
        return self._shelf.get(layout, **RUN).path


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
def test_what_fits_exactly_is_exact(
    exporter: Exporter, layout: str, suffix: str, kind: Kind
) -> None:
    """The limit decides nothing as long as the exact file keeps it."""
    limit = exporter.size(layout, kind, suffix)
    fitted = exporter.fitted(layout, kind, suffix, limit, Fit.COARSEN)
    assert fitted.report.resolutions == ()
    assert fitted.loaded.content == fitted.exact.content


# -- everything is there -----------------------------------------------------------------------


def test_it_loads_without_errors(coarse: Fitted) -> None:
    assert coarse.loaded.processor.import_errors() == []
    assert coarse.loaded.processor.rows("SELECT count(*) FROM slice WHERE dur < 0") == [(0,)]


def test_each_row_holds_all_its_records(coarse: Fitted) -> None:
    """Count, busy time, first start and last end of every row are those of the exact file."""
    check_same_rows(coarse.loaded.totals, coarse.exact.totals)
    assert any(one.merged for one in coarse.loaded.totals.rows.values())


def test_counters_keep_their_range_and_their_time(coarse: Fitted) -> None:
    """Least and greatest value to the digit; the first and the last sample within one bin."""
    found, wanted = coarse.loaded.totals.counters, coarse.exact.totals.counters
    assert found.keys() == wanted.keys()
    width_ns = widths(coarse.report).get("counters", 0)
    for row, one in found.items():
        assert (one.least, one.greatest) == (wanted[row].least, wanted[row].greatest)
        assert 0 <= one.first_ns - wanted[row].first_ns <= width_ns
        assert 0 <= wanted[row].last_ns - one.last_ns <= width_ns


def widths(report: ExportReport) -> dict[str, int]:
    """The resolution of each layer."""
    return {row.layer: row.resolution_ns for row in report.resolutions}


def test_long_slices_are_exact(coarse: Fitted) -> None:
    """Each slice of its layer's resolution or longer, with its name, time and args; none is new.

    Before the moment up to which a layer is finer, its finer resolution is enough.
    """
    rows = {row.layer: row for row in coarse.report.resolutions}
    drawn = Counter(one for one in coarse.loaded.slices if one.busy_ns is None)
    every = Counter(coarse.exact.slices)
    assert not drawn - every, "a slice that is no record"
    for one, count in every.items():
        resolution = rows[one.layer]
        until = resolution.finer_until_ns
        is_finer = until is not None and one.start_ns < until
        width_ns = resolution.finer_ns if is_finer else resolution.resolution_ns
        assert width_ns is not None
        if one.length_ns >= width_ns:
            assert drawn[one] == count


@pytest.mark.parametrize("layout", ["torch-db", "mindstudio"])
def test_steps_stay_exact_longest(exporter: Exporter, layout: str) -> None:
    """In the least limit that has to work, every step of every rank is there as it was."""
    fitted = exporter.fitted(layout, Kind.DETAIL, ".pftrace", LEAST_LIMIT, Fit.COARSEN)
    steps = [one for one in fitted.exact.slices if one.layer == "step"]
    assert len({step.name for step in steps if step.row == ("Steps",)}) == RUN["steps"]
    found = Counter(one for one in fitted.loaded.slices if one.layer == "step")
    assert found == Counter(steps)
    assert any(one.busy_ns is not None for one in fitted.loaded.slices), "tasks are merged"


# -- and what is not is said -------------------------------------------------------------------


def test_the_report_counts_what_was_drawn(coarse: Fitted) -> None:
    """Exact slices, merged ones and those behind them, by layer, and arrows that lost an end."""
    check_resolutions(coarse.report.resolutions, coarse.loaded.totals)
    samples = {row.layer: row.exact + row.merged for row in coarse.report.resolutions}
    assert samples.get("counters", 0) == coarse.exact.totals.samples
    lost = sum(omission.rows for omission in coarse.report.omissions if "merged" in omission.reason)
    assert coarse.loaded.flows() + lost == coarse.exact.flows()


def test_the_resolution_is_said_everywhere(coarse: Fitted) -> None:
    """In the report, in its JSON, on the terminal and in the file itself."""
    rows = coarse.report.resolutions
    assert all(row.resolution_ns & (row.resolution_ns - 1) == 0 for row in rows)
    assert any(row.resolution_ns and row.merged for row in rows)
    in_json = json.loads(coarse.report.to_json())["resolution"]
    assert [(row["layer"], row["resolution_ns"], row["merged"]) for row in in_json] == [
        (row.layer, row.resolution_ns, row.merged) for row in rows
    ]
    lines = [row.describe() for row in rows]
    terminal = "\n".join(coarse.report.lines())
    assert all(line in terminal for line in lines)
    assert coarse.loaded.attributes["io.tlexport.resolution"] == "; ".join(lines)
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
    assert main([*command, "--limit", str(size * 9 // 10)]) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("tlexport: ")
    assert (f"{size / 1024:.1f} KB" in said.err) == ("error" in words)
    assert list(tmp_path.iterdir()) == []
    assert main([*command, "--limit", str(size)]) == 0
    assert list(tmp_path.iterdir()) == [target]


# -- the other ways to fit ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suffix", "share"),
    [(".pftrace", 0.6), (".pftrace.gz", 0.9), (".json", 0.5), (".json.gz", 0.7)],
)
def test_chosen_steps_keep_the_limit(exporter: Exporter, suffix: str, share: float) -> None:
    """The summary of all steps and the detail of as many as fit; what is left out is counted."""
    limit = limit_of(exporter, "torch-db", Kind.DETAIL, suffix, share)
    fitted = exporter.fitted("torch-db", Kind.DETAIL, suffix, limit, Fit.STEPS)
    assert fitted.size <= limit
    assert len(fitted.writes) <= MOST_WRITES
    assert list(fitted.directory.iterdir()) == [fitted.report.outputs[0].path]
    assert fitted.loaded.processor.import_errors() == []
    kept = fitted.report.outputs[0].steps
    assert 0 < len(kept) < RUN["steps"]
    for layer in ("step", "overlap"):
        assert Counter(one for one in fitted.loaded.slices if one.layer == layer) == Counter(
            one for one in fitted.exact.slices if one.layer == layer
        )
    assert sum(omission.rows for omission in fitted.report.omissions if omission.loss) > 0
    assert shlex.split(fitted.report.suggestion)[0] == "tlexport"
    tasks = Counter(one for one in fitted.loaded.slices if one.layer == "task")
    assert not tasks - Counter(fitted.exact.slices)
    ran = [one for rank in exporter.run.ranks for one in rank.steps if one.id in kept]
    assert tasks.total() == sum(len(one.tasks) for step in ran for one in step.iterations)


@pytest.mark.parametrize(("suffix", "share"), [(".pftrace", LEAST_LIMIT), (".json.gz", 0.3)])
def test_parts_are_not_written_over_and_over(exporter: Exporter, suffix: str, share: float) -> None:
    """All that is written in all tries is at most four times what is kept."""
    limit = limit_of(exporter, "torch-db", Kind.DETAIL, suffix, share)
    fitted = exporter.fitted("torch-db", Kind.DETAIL, suffix, limit, Fit.SPLIT)
    sizes = [output.size_bytes for output in fitted.report.outputs]
    assert len(sizes) > 1
    assert max(sizes) <= limit
    assert sum(fitted.writes) <= MOST_WRITES * sum(sizes)
