"""Runs of the whole program on a fuzzed capture: each way to ask for it has a number."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.oracles import check_export, load
from timeline.commands.compare import compare
from timeline.commands.export import export
from timeline.commands.show import read_verdict
from timeline.reports.terminal import Display
from timeline.reports.terminal_verdict import filed_text
from timeline.sources.finding.captures import find_captures

WAYS = 64
COMPARED, SEVERAL_RANKS, WITH_PAGE = 8, 3, 11
"""One way in so many compares, reads several ranks, or writes a page."""
SMALL_LIMIT_BYTES = 6 * 1024
"""A limit that many small pictures exceed, so that they are merged, trimmed or split."""
SUFFIXES = (".pftrace", ".pftrace", ".json", ".pftrace.gz", ".json.gz")
LAYERS = (
    None,
    "all",
    "all",
    "hardware,communication,steps",
    "overlap",
    "cann,framework,counters,scopes",
)
SELECTIONS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"steps": "1"},
    {"steps": "1-2"},
    {"graphs": "1"},
    {"window": "20%:70%"},
    {"window": "0:50%", "steps": "2"},
    {"ranks": "0"},
    {"align": "start"},
)
_CUTS = frozenset({"steps", "window", "graphs"})
_DISPLAY = Display(80, "utf-8", terminal=False)


class FuzzedExport:
    """Exports and compares a capture, beside a sound one of another rank."""

    def __init__(self, capture: Path, sound: Path, output: Path) -> None:
        """capture, sound: directories beside each other. output: an empty one."""
        self._capture, self._sound, self._output = capture, sound, output

    def run(self, way: int) -> None:
        """Draw it in a way, load the files, and check what they promise; nothing stays behind.

        Raises:
            TimelineError: it is refused.
            BrokenPromise: what never may be happened.
        """
        random = Random(way)
        try:
            if way % COMPARED == 0:
                self._compare(random)
            else:
                self._export(random, way)
        finally:
            for path in self._output.iterdir():
                path.unlink()

    def _export(self, random: Random, way: int) -> None:
        options: dict[str, Any] = {
            "kind": random.choice(["detail", "detail", "detail", "summary"]),
            "layers": random.choice(LAYERS),
            "limit": random.choice([0, SMALL_LIMIT_BYTES]),
            "fit": random.choice(["coarsen", "coarsen", "steps", "split"]),
            "args": random.choice(["all", "default", "none"]),
            "group_by": random.choice(["rank", "rank", "layer"]),
            "scopes": random.choice([False, True]),
            **random.choice(SELECTIONS),
        }
        path = self._capture
        if way % SEVERAL_RANKS == 0:
            path = self._capture.parent
            options["assign_rank"] = _numbered(path)
        if way % WITH_PAGE == 0:
            options["report"] = self._output / "page.html"
        target = self._output / f"drawn{random.choice(SUFFIXES)}"
        report = export(path, target, jobs=1, force=True, **options)
        check_export(load(report), selects=bool(_CUTS & options.keys()))
        report.to_json()
        for output in report.outputs:
            filed_text(read_verdict(output.path), _DISPLAY, verbose=True)

    def _compare(self, random: Random) -> None:
        pair = (self._capture, self._sound)
        base, new = pair if random.random() < 1 / 2 else pair[::-1]
        target = self._output / f"compared{random.choice(SUFFIXES)}"
        known = {name: 0 for path in pair for name in _numbered(path)}
        layers = random.choice(LAYERS)
        report = compare(base, new, target, layers=layers, assign_rank=known, jobs=1, force=True)
        report.to_json()
        filed_text(read_verdict(target), _DISPLAY, verbose=True)


def _numbered(path: Path) -> dict[str, int]:
    """A rank for each capture: what is fuzzed may tell none, or that of the other."""
    captures = find_captures(path).captures
    return {str(capture.directory): rank for rank, capture in enumerate(captures)}
