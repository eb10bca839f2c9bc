"""Runs of the whole program in process: export, load, check, report, and compare."""

from __future__ import annotations

import hashlib
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.oracles import (
    LoadedExport,
    check_directory,
    check_export,
    check_limited,
    load,
    tree_hash,
    without_compiled,
)
from tests.fuzz.promises import BrokenPromise
from timeline.commands.compare import compare
from timeline.commands.export import export
from timeline.commands.show import read_verdict
from timeline.errors import LimitError, TimelineError
from timeline.reports.comparison_markdown import comparison_markdown
from timeline.reports.comparison_report import ComparisonReport
from timeline.reports.export_report import ExportReport
from timeline.reports.terminal import Display
from timeline.reports.terminal_comparison import comparison_text
from timeline.reports.terminal_filed import filed_text
from timeline.reports.terminal_verdict import verdict_text

__all__ = ["OTHERS", "WHOLE", "WholeProgram"]

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
OTHER_WAY_IN = 3
"""Runs of which one is drawn in another way too."""
DEEP_IN = 50
"""Runs of which one is done again in all ways that must not change anything."""
COMPARED_IN = 12
_DISPLAY = Display(80, "utf-8", terminal=False)
PAGE_IN = 40


class WholeProgram:
    """Runs the program on one capture, in a directory of its own."""

    def __init__(self, capture: Path, root: Path) -> None:
        self._capture = capture
        self._output = root / "written"
        self._output.mkdir()
        self._temporary = root / "temporary"
        self._temporary.mkdir()
        self._seen = 0
        self.runs = self.drew = self.checked = self.refused = 0
        """Exports and comparisons; those that drew a slice; inputs checked in depth; refusals."""

    def run(self, name: str | None) -> bytes:
        """Run everything for a capture as it is now; gives a digest of what is drawn.

        Raises:
            TimelineError: it is refused.
            BrokenPromise: what never may be happened.
        """
        chance = zlib.crc32((name or "").encode())
        before = tree_hash(self._capture)
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(tempfile, "tempdir", str(self._temporary))
                return self._run(name, chance)
        finally:
            for path in self._output.iterdir():
                path.unlink()
            if tree_hash(self._capture) != before:
                raise BrokenPromise("the input is not what it was")
            check_directory(self._temporary)

    def _run(self, name: str | None, chance: int) -> bytes:
        whole = self._export("whole.pftrace", WHOLE)
        drawn = self._bytes(whole)
        self._say(whole.report, chance)
        if name is None or chance % OTHER_WAY_IN == 0:
            self._other_way(whole, chance // OTHER_WAY_IN)
        if chance // 7 % COMPARED_IN == 0:
            self._compare()
        if name is None or chance // 11 % DEEP_IN == 0:
            self._deep(drawn, jobs=chance // 13 % 8 == 0)
        return hashlib.sha256(drawn).digest()

    def _bytes(self, made: LoadedExport) -> bytes:
        return b"".join(output.path.read_bytes() for output in made.report.outputs)

    def _export(self, name: str, options: Mapping[str, Any]) -> LoadedExport:
        self.runs += 1
        target = self._output / name
        report = export(self._capture, target, **options)
        made = load(report)
        self.drew += bool(made.slices)
        check_export(made, selects=bool({"steps", "window"} & options.keys()))
        return made

    def _say(self, report: ExportReport, chance: int) -> None:
        """Everything that is said of it; a page of some."""
        report.to_json()
        for line in (*report.lines(), *report.verbose_lines()):
            line.encode()
        verdict_text(report.verdict, report.figures, _DISPLAY, verbose=True).encode()
        report.step_times().to_csv()
        if chance // 5 % PAGE_IN == 0:
            self.runs += 1
            page = self._output / "page.html"
            export(self._capture, self._output / "page.pftrace", **WHOLE, report=page)
            page.read_text("utf-8")
        if chance // 3 % PAGE_IN == 0:
            for output in report.outputs:
                filed_text(read_verdict(output.path), _DISPLAY, verbose=True)

    def _other_way(self, whole: LoadedExport, chance: int) -> None:
        suffix, changes = OTHERS[chance % len(OTHERS)]
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
            self.refused += 1
            return
        if made.report.limited_by is not None and options.get("fit", "coarsen") == "coarsen":
            exact = self._export(f"exact{suffix}", {**options, "limit": 0, "max_events": 0})
            check_limited(made, exact)

    def _compare(self) -> None:
        """A profile and itself: nothing changed."""
        self.runs += 1
        keywords: dict[str, Any] = {"layers": "all", "kind": "detail", "jobs": 1, "force": True}
        try:
            report = compare(
                self._capture, self._capture, self._output / "compare.pftrace", **keywords
            )
        except LimitError:
            self.refused += 1
            return
        self.drew += any(output.slices for output in report.outputs)
        report.to_json()
        comparison_markdown(report).encode()
        comparison_text(report.comparison, _DISPLAY, verbose=True).encode()
        _check_no_change(report)

    def _deep(self, drawn: bytes, *, jobs: bool) -> None:
        """The same bytes again, without what is compiled, and for two processes."""
        self.checked += 1
        again = self._bytes(self._export("whole.pftrace", WHOLE))
        if again != drawn:
            raise BrokenPromise("the same profile is drawn in other bytes")
        with without_compiled():
            plain = self._bytes(self._export("whole.pftrace", WHOLE))
        if plain != drawn:
            raise BrokenPromise("without what is compiled the bytes are others")
        if jobs:
            several = self._bytes(self._export("whole.pftrace", {**WHOLE, "jobs": 2}))
            if several != drawn:
                raise BrokenPromise("for two processes the bytes are others")


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
