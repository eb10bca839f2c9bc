"""Runs of the whole program in process: export, load, check, report, and compare."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.fuzz.oracles import (
    LoadedExport,
    check_directory,
    check_export,
    check_limited,
    load,
    written,
)
from tests.fuzz.promises import BrokenPromise
from tests.support.other_readings import READINGS
from timeline.commands.compare import compare
from timeline.commands.export import export
from timeline.commands.show import read_verdict
from timeline.errors import LimitError, TimelineError
from timeline.reports.comparison_report import comparison_markdown
from timeline.reports.export_report import ExportReport
from timeline.reports.terminal import Display
from timeline.reports.terminal_comparison import comparison_text
from timeline.reports.terminal_verdict import verdict_text

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
DEEP_IN = 8
"""Inputs of which one is compared with itself, and read in all ways that must change nothing."""
_DISPLAY = Display(80, "utf-8", terminal=False)


class WholeProgram:
    """Runs the program on one capture, in a directory of its own."""

    def __init__(self, capture: Path, root: Path) -> None:
        self._capture = capture
        self._output = Path(tempfile.mkdtemp(prefix="written-", dir=root))
        self._temporary = Path(tempfile.mkdtemp(prefix="temporary-", dir=root))

    def run(self, random: Random, *, everything: bool = False) -> bool:
        """Draw a capture as it is now, in full and in another way, and return if it has slices.

        everything: check in depth in any case.

        Raises:
            TimelineError: it is refused.
            BrokenPromise: what never may be happened.
        """
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tempfile, "tempdir", str(self._temporary))
                whole = self._export("whole.pftrace", WHOLE)
                drawn = written(whole.report)
                self._show(whole.report)
                self._other_way(whole, random)
                if everything or random.randrange(DEEP_IN) == 0:
                    self._compare()
                    self._read_otherwise(drawn)
                return whole.slices > 0
        finally:
            for path in self._output.iterdir():
                path.unlink()
            check_directory(self._temporary)

    def _export(self, name: str, options: Mapping[str, Any]) -> LoadedExport:
        made = load(export(self._capture, self._output / name, **options))
        check_export(made, selects=bool({"steps", "window"} & options.keys()))
        return made

    def _show(self, report: ExportReport) -> None:
        """Make all that is said of an export."""
        report.to_json()
        for line in (*report.lines(), *report.verbose_lines()):
            line.encode()
        report.step_times().to_csv()
        verdict_text(report.verdict, report.figures, _DISPLAY, verbose=True).encode()
        for output in report.outputs:
            read_verdict(output.path).to_json()

    def _other_way(self, whole: LoadedExport, random: Random) -> None:
        suffix, changes = random.choice(OTHERS)
        options = {**WHOLE, **changes}
        for key, size in (
            ("limit", sum(output.size_bytes for output in whole.report.outputs)),
            ("max_events", sum(output.elements for output in whole.report.outputs)),
        ):
            if isinstance(options.get(key), float):
                options[key] = max(1, int(size * options[key]))
        try:
            made = self._export(f"other{suffix}", options)
        except TimelineError:
            return
        if made.report.limited_by is not None and options.get("fit", "coarsen") == "coarsen":
            exact = self._export(f"exact{suffix}", {**options, "limit": 0, "max_events": 0})
            check_limited(made, exact)

    def _compare(self) -> None:
        """Compare a profile with itself: nothing changed."""
        keywords: dict[str, Any] = {"layers": "all", "kind": "detail", "jobs": 1, "force": True}
        target = self._output / "compare.pftrace"
        try:
            report = compare(self._capture, self._capture, target, **keywords)
        except LimitError:
            return
        report.to_json()
        comparison_markdown(report).encode()
        comparison_text(report.comparison, _DISPLAY, verbose=True).encode()
        for way, row in _rows("comparison", report.comparison.to_dict()):
            for key, value in row.items():
                new = key.replace("base", "new")
                if "base" in key and new in row and row[new] != value:
                    raise BrokenPromise(f"{way}: {key} of one profile is {value}, {row[new]}")
                changes = key.startswith(("change", "delta", "difference"))
                if changes and isinstance(value, (int, float)) and value == value and value:
                    raise BrokenPromise(f"{way}: {key} of one profile is {value}")

    def _read_otherwise(self, drawn: bytes) -> None:
        """Draw the same bytes again, however they are read."""
        if self._drawn_again() != drawn:
            raise BrokenPromise("the same profile is drawn in other bytes")
        for read_so in READINGS:
            with read_so():
                again = self._drawn_again()
            if again != drawn:
                raise BrokenPromise(f"{read_so.__name__.replace('_', ' ')} the bytes are others")

    def _drawn_again(self) -> bytes:
        target = self._output / "again.pftrace"
        return written(export(self._capture, target, **WHOLE))


def _rows(way: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        below = [row for key, one in value.items() for row in _rows(f"{way}.{key}", one)]
        return [(way, value), *below]
    if isinstance(value, list):
        return [row for one in value for row in _rows(way, one)]
    return []
