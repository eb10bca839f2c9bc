"""Printing of warnings, of data for programs, and of text."""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from timeline.cli.parser import PrintOptions, ViewOptions
from timeline.errors import TimelineWarning, UsageError, in_python
from timeline.language import ENGLISH, said_parts, spoken_language
from timeline.options import Fit
from timeline.printable import print_text, printable_json, say, say_remarks
from timeline.process import WRITTEN_BEFORE

if TYPE_CHECKING:
    from timeline.progress import Progress
    from timeline.reports.comparison_report import ComparisonReport
    from timeline.reports.export_report import ExportReport
    from timeline.tables.table import Table

OPEN_HINT = "Open: https://ui.perfetto.dev (drag the file in{})"
"""Hint on where to open the timeline; the braces are for a further way to open it."""
SENTENCES = frozenset(
    {"sentences", "sentence", "text", "remedy", "notes", "warnings", "reason", "problem", "asks"}
)
"""Keys of reports whose strings are sentences."""
STDOUT = "-"
"""The file name that stands for standard output."""


def check_standard_output(prints: PrintOptions, asked: argparse.Namespace) -> None:
    """Check that at most one option prints to standard output.

    Raises:
        UsageError: two options exclude each other, or a timeline would go to a terminal.
    """
    given = vars(asked)
    piped = is_piped(given.get("output")) and "-o -"
    printed = [
        prints.json and "--json",
        *(given.get(name) == STDOUT and f"--{name} -" for name in ("csv", "markdown")),
        piped,
    ]
    for first, second in (
        (prints.quiet and "-q", prints.verbose and "-v"),
        *combinations(printed, 2),
        (prints.json and "--json", prints.verbose and "-v"),
        (given.get("list") and "--list", given.get("csv") and "--csv"),
        (piped, given.get("open") and "--open"),
        (piped, given.get("offline") and "--offline"),
        (piped, given.get("report") and "--report"),  # its rows open the timeline by name
        (piped, given.get("fit") == Fit.SPLIT.value and "--fit split"),
    ):
        if first and second:
            raise UsageError(f"{first} and {second} exclude each other.", do="Leave out one.")
    if piped and (sys.stdout is None or sys.stdout.isatty()):
        raise UsageError(
            "-o - writes a timeline, which no terminal shows.", do="Write it to a file: > FILE"
        )


def is_piped(output: Path | None) -> bool:
    """Return whether -o names standard output."""
    return output == Path(STDOUT)


@contextlib.contextmanager
def timeline_file(keywords: dict[str, Any]) -> Iterator[None]:
    """Let `-o -` write a temporary file within a `with` block, then copy it to standard output."""
    if not is_piped(keywords["output"]):
        yield
        return
    from timeline.encoders.drafts import printed_file

    with printed_file("timeline.pftrace", sys.stdout.buffer) as keywords["output"]:
        yield


def check_no_file(asked: argparse.Namespace, views: ViewOptions, *, page: bool = False) -> None:
    """Check that --verdict, the answer alone, is not combined with files or other views.

    page: whether it may be combined with --report.

    Raises:
        UsageError: it is combined with one.
    """
    for flag, value in (
        ("-o", asked.output),
        ("--csv", asked.csv),
        ("--report", not page and asked.report),
        ("--markdown", getattr(asked, "markdown", None)),
        ("--open", views.open),
        ("--offline", views.offline),
        ("--list", views.list),
    ):
        if value:
            raise UsageError(
                f"--verdict and {flag} exclude each other: --verdict prints the answer alone.",
                do="Leave out one.",
            )


def table_file(csv: str | None) -> str | None:
    """Return the file of the table, None if it is printed or not requested."""
    return None if csv == STDOUT else csv


def shown_progress(prints: PrintOptions) -> Progress:
    """Return progress on the terminal; silent without a terminal or with -q."""
    from timeline.progress import Silent, TerminalLine

    shown = sys.stderr is not None and sys.stderr.isatty() and not prints.quiet
    return TerminalLine() if shown else Silent()


@contextlib.contextmanager
def after_writing() -> Iterator[None]:
    """Mark an interrupt in a `with` block as one after the files were written."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.args = (WRITTEN_BEFORE,)
        raise


def written_lines(
    report: ExportReport | ComparisonReport, asked: argparse.Namespace, prints: PrintOptions
) -> list[str]:
    """Return the lines of a report on what was written; a temporary file gets no name."""
    if is_piped(asked.output):
        outputs = tuple(replace(one, path=Path("standard output")) for one in report.outputs)
        report = replace(report, outputs=outputs)
    return report.lines(verbose=prints.verbose)


def print_data(
    report: ExportReport | ComparisonReport,
    table: Callable[[], Table],
    prints: PrintOptions,
    asked: argparse.Namespace,
) -> TextIO | None:
    """Print the warnings (with -q only the notes), and the data for programs that options request.

    Returns:
        The stream for the report as text; None if no text is printed.
    """
    say_remarks(*(report.notes if prints.quiet else report.warnings))
    if prints.json:
        print_json(report.to_json())
        return None
    if asked.csv == STDOUT and sys.stdout is not None:
        print_text(table().to_csv(safe=sys.stdout.isatty()))
    if prints.quiet:
        return None
    return sys.stderr if asked.csv == STDOUT or is_piped(asked.output) else sys.stdout


def say_commands(commands: Iterable[str]) -> None:
    """Print the suggested commands, if any, after an empty line."""
    if lines := list(commands):
        say("", *lines)


@contextlib.contextmanager
def warnings_caught() -> Iterator[list[str]]:
    """Collect the warnings of the library in a list, each once, which is filled at the end."""
    remarks: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TimelineWarning)
        yield remarks
    remarks += dict.fromkeys(str(warning.message) for warning in caught)


def say_warnings(remarks: Iterable[str], notes: Iterable[str], prints: PrintOptions) -> None:
    """Print notes, and warnings of the library that are not notes; with -q only the notes."""
    printed = set(map(in_python, notes))
    more = () if prints.quiet else (one for one in remarks if one not in printed)
    say_remarks(*more, *notes)


def viewer(
    views: ViewOptions, prints: PrintOptions
) -> Callable[[ExportReport | ComparisonReport], None] | None:
    """Return a function that opens the written file, None if not requested.

    Raises:
        UsageError: there is no local UI for --offline.
    """
    if not views.open and not views.offline:
        return None
    from timeline.viewer.opening import show
    from timeline.viewer.serving import installed_pages

    return partial(show, pages=installed_pages() if views.offline else None, quiet=prints.quiet)


def look_at_lines(*files: Path | None) -> list[str]:
    """Return a line for each file that is not None."""
    return [f"Look at: {file}" for file in files if file is not None]


def print_json(document: bytes) -> None:
    """Print a JSON document, with characters escaped that standard output cannot encode.

    Its sentences are in the spoken language, its keys in English.
    """
    if spoken_language() != ENGLISH:
        import orjson  # printed as it is in English

        spoken = said_parts(orjson.loads(document), SENTENCES)
        document = orjson.dumps(spoken, option=orjson.OPT_INDENT_2)
    if sys.stdout is not None:
        print(printable_json(document.decode(), sys.stdout.encoding or "utf-8"))


def flush() -> None:
    """Flush standard output, so that errors are raised here and not when Python exits."""
    if sys.stdout is not None:
        sys.stdout.flush()
