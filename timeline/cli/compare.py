"""`tlexport compare`: compares two runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from timeline.cli.parser import PrintOptions, given_keywords
from timeline.cli.printing import (
    OPEN_HINT,
    after_writing,
    check_standard_output,
    flush,
    look_at_lines,
    print_data,
    shown_progress,
    table_file,
)
from timeline.declarations import fill
from timeline.options import ExportOptions, ReadingOptions
from timeline.printable import say
from timeline.process import signals_held
from timeline.selection import Selection

if TYPE_CHECKING:
    from timeline.reports.comparison_report import ComparisonReport

__all__ = ["run"]


def run(asked: argparse.Namespace) -> None:
    """Compare what is asked for.

    Raises:
        TimelineError: it cannot be done; the message says what to do.
    """
    prints = fill(PrintOptions, vars(asked))
    check_standard_output(prints, asked.csv)
    with signals_held():  # NumPy takes an interrupt of its import for a broken installation
        from timeline.commands.compare import compare
    selection = Selection(**given_keywords(asked, Selection))
    keywords = given_keywords(asked, ExportOptions, ReadingOptions)
    keywords["csv"] = table_file(asked.csv)
    report = compare(
        asked.base,
        asked.new,
        selection=selection,
        progress=shown_progress(prints),
        **keywords,
    )
    with after_writing():
        _print_report(report, prints, asked.csv)
        flush()


def _print_report(report: ComparisonReport, prints: PrintOptions, csv: str | None) -> None:
    """Print a report: as JSON, as a table, or in words; words give way to a table on stdout."""
    words = print_data(report, report.comparison.all_operators, prints, csv)
    if words is None:
        return
    from timeline.reports.terminal import Display
    from timeline.reports.terminal_comparison import comparison_text

    words.write(comparison_text(report.comparison, Display.of(words)) + "\n")
    say(*report.lines(), *look_at_lines(report.page), OPEN_HINT.format(""), stream=words)
