"""Runs of the whole program in process: export, load, check, report, and compare."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz.findings import Fault
from tests.fuzz.option_sweep import option_cases, try_option
from tests.fuzz.oracles import (
    LoadedExport,
    check_directory,
    check_export,
    check_limited,
    load,
)
from tests.fuzz.promises import BrokenPromise
from tests.support.other_readings import READINGS
from timeline.commands.compare import compare
from timeline.commands.export import export
from timeline.commands.show import read_verdict
from timeline.errors import LimitError, TimelineError
from timeline.reports.comparison_report import ComparisonReport, comparison_markdown
from timeline.reports.export_report import ExportReport
from timeline.reports.terminal import Display
from timeline.reports.terminal_comparison import comparison_text
from timeline.reports.terminal_verdict import filed_text, verdict_text

WHOLE: Mapping[str, Any] = {
    "kind": "detail",
    "args": "all",
    "limit": 0,
    "layers": "all",
    "jobs": 1,
    "force": True,
}
"""Everything that there is, drawn in full."""
OTHERS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    (".pftrace", {"limit": 0.8}),
    (".json", {"limit": 0}),
    (".pftrace", {"kind": "summary", "layers": None, "args": "default"}),
    (".json.gz", {"limit": 0.7, "args": "default"}),
    (".pftrace", {"limit": 0.9, "fit": "split"}),
    (".pftrace", {"limit": 0.9, "fit": "steps", "layers": None}),
    (".pftrace.gz", {"max_events": 0.6, "group_by": "layer"}),
    (".pftrace", {"scopes": True, "merge_graphs": False, "causes": False}),
    (".pftrace", {"steps": "1-2", "align": "none"}),
    (".pftrace", {"window": "20%:70%", "align": "start"}),
    (".json", {"limit": 0.8, "scopes": True, "group_by": "layer"}),
    (".pftrace", {"max_events": 0.5, "args": "none", "layers": "hardware,communication,steps"}),
)
"""Other ways to draw it, by suffix; a limit below one is a share of what the whole takes."""
LIMITLESS = tuple(
    (suffix, changes)
    for suffix, changes in OTHERS
    if not any(isinstance(changes.get(key), float) for key in ("limit", "max_events"))
)
"""Those that need no other picture to be compared with."""
ANOTHER_WAY_IN = 4
"""Inputs of which one is drawn in another way instead of in full."""
LIMITED_IN = 8
"""Inputs, drawn in full, of which one is drawn within a limit too."""
ODD_OPTION_IN = 24
"""Inputs of which one is drawn again with an option at an extreme."""
DEEP_IN = 50
"""Inputs of which one is done again in all ways that must not change anything, and compared."""
ON_CLUSTER_IN = 1000
TOLD_IN = 8
_DISPLAY = Display(80, "utf-8", terminal=False)
PAGE_IN = 60
_BESIDE = tempfile.gettempdir()
"""Where a cluster keeps what it needs, while the program has a directory of its own."""


@dataclass(frozen=True)
class Drawn:
    """What an input came to: the bytes, and whether they hold a slice."""

    content: bytes
    has_slices: bool


class WholeProgram:
    """Runs the program on one capture, in a directory of its own."""

    def __init__(self, capture: Path, root: Path) -> None:
        self._capture = capture
        self._output = root / "written"
        self._output.mkdir()
        self._temporary = root / "temporary"
        self._temporary.mkdir()
        self._cases = [case for case in option_cases() if case.where == "timeline.export"]
        self.runs = self.loaded = self.deep = 0
        """Exports and comparisons; those that were loaded; inputs checked in depth."""

    def run(self, chance: int, *, everything: bool = False) -> Drawn:
        """Run everything for a capture as it is now.

        chance: a number of the input, which decides what is done. everything: whether all is done,
        but for what takes long.

        Raises:
            TimelineError: it is refused.
            BrokenPromise: what never may be happened.
        """
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tempfile, "tempdir", str(self._temporary))
                return self._run(Random(chance), everything=everything)
        finally:
            for path in self._output.iterdir():
                path.unlink()
            check_directory(self._temporary)

    def _run(self, random: Random, *, everything: bool) -> Drawn:
        if not everything and random.randrange(ANOTHER_WAY_IN) == 0:
            suffix, changes = random.choice(LIMITLESS)
            other = self._export(f"other{suffix}", {**WHOLE, **changes})
            self._say(other.report, random)
            return _drawn(other)
        whole = self._export("whole.pftrace", WHOLE)
        drawn = _drawn(whole)
        self._say(whole.report, random)
        if everything or random.randrange(LIMITED_IN) == 0:
            self._other_way(whole, random)
        if everything or random.randrange(DEEP_IN) == 0:
            self._compare()
            on_cluster = random.randrange(ON_CLUSTER_IN // DEEP_IN) == 0
            self._deep(drawn.content, on_cluster=on_cluster)
        if random.randrange(ODD_OPTION_IN) == 0:
            self._with_odd_option(random)
        return drawn

    def _export(self, name: str, options: Mapping[str, Any]) -> LoadedExport:
        self.runs += 1
        target = self._output / name
        report = export(self._capture, target, **options)
        made = load(report)
        self.loaded += 1
        check_export(made, selects=bool({"steps", "window"} & options.keys()))
        return made

    def _say(self, report: ExportReport, random: Random) -> None:
        """Everything that is said of it; tables of some, and a page of few."""
        report.to_json()
        for line in (*report.lines(), *report.verbose_lines()):
            line.encode()
        report.step_times().to_csv()
        if random.randrange(TOLD_IN) == 0:
            verdict_text(report.verdict, report.figures, _DISPLAY, verbose=True).encode()
            for output in report.outputs:
                filed_text(read_verdict(output.path), _DISPLAY, verbose=True)
        if random.randrange(PAGE_IN) == 0:
            self.runs += 1
            page = self._output / "page.html"
            export(self._capture, self._output / "page.pftrace", **WHOLE, report=page)
            page.read_text("utf-8")

    def _other_way(self, whole: LoadedExport, random: Random) -> None:
        suffix, changes = random.choice(OTHERS)
        options = {**WHOLE, **changes}
        for key, found in (
            ("limit", sum(output.size_bytes for output in whole.report.outputs)),
            ("max_events", sum(output.elements for output in whole.report.outputs)),
        ):
            if isinstance(options.get(key), float):
                options[key] = max(1, int(found * options[key]))
        try:
            made = self._export(f"other{suffix}", options)
        except TimelineError:
            return
        if made.report.limited_by is not None and options.get("fit", "coarsen") == "coarsen":
            exact = self._export(f"exact{suffix}", {**options, "limit": 0, "max_events": 0})
            check_limited(made, exact)

    def _with_odd_option(self, random: Random) -> None:
        """Any option with any value is refused by name, or draws what it says."""
        self.runs += 1
        found = try_option(random.choice(self._cases), self._capture, self._output)
        if isinstance(found, Fault):
            raise BrokenPromise(f"with an odd option: {found.kind} {found.told}")

    def _compare(self) -> None:
        """A profile and itself: nothing changed."""
        self.runs += 1
        keywords: dict[str, Any] = {"layers": "all", "kind": "detail", "jobs": 1, "force": True}
        try:
            report = compare(
                self._capture, self._capture, self._output / "compare.pftrace", **keywords
            )
        except LimitError:
            return
        report.to_json()
        comparison_markdown(report).encode()
        comparison_text(report.comparison, _DISPLAY, verbose=True).encode()
        _check_no_change(report)

    def _deep(self, drawn: bytes, *, on_cluster: bool) -> None:
        """The same bytes again, however it is read, for two processes, and on a cluster."""
        self.deep += 1
        if self._again({}) != drawn:
            raise BrokenPromise("the same profile is drawn in other bytes")
        for read_so in READINGS:
            with read_so():
                again = self._again({})
            if again != drawn:
                raise BrokenPromise(f"{read_so.__name__.replace('_', ' ')} the bytes are others")
        if self._again({"jobs": 2}) != drawn:
            raise BrokenPromise("for two processes the bytes are others")
        if not on_cluster:
            return
        with _cluster() as address:
            clustered = self._again({"executor": address})
        if clustered != drawn:
            raise BrokenPromise("on a cluster the bytes are others")

    def _again(self, changes: Mapping[str, Any]) -> bytes:
        self.runs += 1
        target = self._output / "again.pftrace"
        return _written(export(self._capture, target, **{**WHOLE, **changes}))


@contextmanager
def _cluster() -> Iterator[str]:
    """The address of a Dask cluster of threads of this process."""
    import dask
    import distributed

    with (
        tempfile.TemporaryDirectory(prefix="tlexport-cluster-", dir=_BESIDE) as directory,
        dask.config.set({"temporary-directory": directory}),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=1,
            processes=False,
            protocol="tcp",
            dashboard_address=None,
        ) as cluster,
    ):
        yield str(cluster.scheduler_address).replace("tcp://", "dask://")


def _written(report: ExportReport) -> bytes:
    return b"".join(output.path.read_bytes() for output in report.outputs)


def _drawn(made: LoadedExport) -> Drawn:
    return Drawn(_written(made.report), made.slices > 0)


def _check_no_change(report: ComparisonReport) -> None:
    for way, row in _rows("comparison", report.comparison.to_dict()):
        for key, value in row.items():
            new = key.replace("base", "new")
            if "base" in key and new in row and row[new] != value:
                raise BrokenPromise(f"{way}: {key} of a profile and itself are {value}, {row[new]}")
            changes = key.startswith(("change", "delta", "difference"))
            if changes and isinstance(value, (int, float)) and value == value and value:
                raise BrokenPromise(f"{way}: {key} of a profile and itself is {value}")


def _rows(way: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        below = [row for key, one in value.items() for row in _rows(f"{way}.{key}", one)]
        return [(way, value), *below]
    if isinstance(value, list):
        return [row for one in value for row in _rows(way, one)]
    return []
