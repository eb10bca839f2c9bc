"""Options at their extremes: each of the command, and each keyword of the library.

The command must answer with an exit code, and the library with a TimelineError or a TypeError,
which is for values of another type than a keyword has.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.simulation import make_run
from tests.fuzz.extremes import INTEGERS, ODD_TEXT
from tests.fuzz.oracles import check_export, load, tree_hash
from tests.fuzz.promises import BrokenPromise
from tests.support.profile_shelf import WRITERS
from timeline.cli.main import main as command
from timeline.cli.parser import PrintOptions
from timeline.commands.compare import compare
from timeline.commands.export import export
from timeline.declarations import options_in
from timeline.errors import TimelineError
from timeline.options import CompareOptions, ExportOptions, ReadingOptions
from timeline.selection import Selection

LAYOUT = "torch-db"
TEXTS = (
    *map(str, INTEGERS),
    *("", " ", "NaN", "inf", "1e308", "1e999999", "0x10", "-", "--", "all", "none", "0-", "-1--2"),
    *("0,1", "1-0", "0-18446744073709551615", "1:2", ":", "0:0", "99999999999s", "1e30s:2e30s"),
    *("100%", "-5%", "1e9%", "0%:0%", "0=1", "1=9223372036s", "1=-99999999999s", "x=3", "=", "٣"),
    *("\u00b2", "\u00b2=1us", "x=\u00b2", "9" * 5000, "0=" + "9" * 5000, "x=" + "9" * 5000),
    *("9" * 400, "0=" + "9" * 400, ODD_TEXT.replace("\n", ""), "\udcff", "n" * 70_000),
)
"""Values of flags."""
VALUES: tuple[Any, ...] = (
    *INTEGERS,
    *(float("nan"), float("inf"), 0.5, None, True, "", "N/A", ODD_TEXT, "0-3", "\x00", (), [1, 1]),
    *({}, {0: 1 << 63}, {"x": 1 << 63}, [1 << 64], [-1], range(1 << 40), b"1"),
)
"""Values of keywords, of their types and of others."""
UNTOUCHED = frozenset({"executor", "open", "offline", "jobs"})
"""Options that start servers or processes; `jobs` is tried with small numbers alone."""


@dataclass(frozen=True)
class OptionCase:
    """One option with one value; where: the command, or the function of the library."""

    where: str
    option: str
    value: Any

    @property
    def name(self) -> str:
        """What is tried, for people."""
        return f"{self.where} {self.option} {repr(self.value)[:80]}"


def option_cases() -> Iterator[OptionCase]:
    """Iterate over every option with every value, of both commands and of both functions."""
    for where, declaring in (
        ("tlexport", (Selection, ExportOptions, ReadingOptions, PrintOptions)),
        ("tlexport compare", (Selection, ExportOptions, ReadingOptions, CompareOptions)),
    ):
        for one in declaring:
            for option in options_in(one):
                if option.keyword in UNTOUCHED or (
                    where.endswith("compare") and option.compare is None
                ):
                    continue
                takes_value = not isinstance(option.default, bool)
                for text in TEXTS if takes_value else ("",):
                    yield OptionCase(where, option.flags[-1], text)
    for where in ("timeline.export", "timeline.compare"):
        more = () if where.endswith("export") else (CompareOptions,)
        for one in (Selection, ExportOptions, ReadingOptions, *more):
            for option in options_in(one):
                if option.keyword in UNTOUCHED or (
                    where.endswith("compare") and option.compare is None
                ):
                    continue
                for value in VALUES:
                    yield OptionCase(where, option.keyword, value)


def write_profile(directory: Path) -> Path:
    """Write a profile of two ranks, as small as it gets."""
    capture = directory / "capture"
    capture.mkdir()
    WRITERS[LAYOUT](make_run(ranks=2, steps=2, ops_per_step=3, planes=1), capture)
    return capture


def try_option(case: OptionCase, capture: Path, output: Path) -> str:
    """Run with an option and return if that drew or was refused."""
    before = tree_hash(capture)
    outcome = _run(case, capture, output)
    if tree_hash(capture) != before:
        raise BrokenPromise("the input is not what it was")
    for path in output.iterdir():
        path.unlink()
    return outcome


def _run(case: OptionCase, capture: Path, output: Path) -> str:
    target = output / "made.pftrace"
    profiles = [capture] if case.where.endswith("export") else [capture, capture]
    with contextlib.chdir(output):
        if case.where.startswith("tlexport"):
            words = [*case.where.split()[1:], *map(str, profiles), "--force", "-j", "1"]
            flag = [f"{case.option}={case.value}"] if case.option.startswith("--") else []
            if case.option in ("--output", "--csv", "--report", "--markdown"):
                flag = [case.option, case.value]
            elif case.value == "":
                flag = [case.option]
            with (
                contextlib.redirect_stdout(io.StringIO()),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                try:
                    code = command([*words, *flag])
                except SystemExit as error:
                    code = 2 if error.code not in (None, 0) else 0
            if code not in (0, 1, 2, 3, 4, 5):
                raise BrokenPromise(f"the exit code is {code}")
            return "drew" if code == 0 else "refused"
        function: Callable[..., Any] = export if case.where.endswith("export") else compare
        keywords = {"output": str(target), "force": True, "jobs": 1, case.option: case.value}
        keywords["kind"] = keywords.get("kind", "detail")
        try:
            report = function(*profiles, **keywords)
        except (TimelineError, TypeError):
            return "refused"
        report.to_json()
        if case.where.endswith("export"):
            check_export(load(report), selects=case.option in ("steps", "window", "graphs"))
        return "drew"
