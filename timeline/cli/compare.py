"""The command `tlexport compare`, which compares two runs, or two parts of one."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from timeline.cli.parser import PrintOptions, ViewOptions, given_keywords
from timeline.cli.printing import (
    OPEN_HINT,
    STDOUT,
    after_writing,
    check_no_file,
    check_standard_output,
    flush,
    is_piped,
    look_at_lines,
    print_data,
    shown_progress,
    table_file,
    timeline_file,
    viewer,
    written_lines,
)
from timeline.declarations import fill
from timeline.errors import RegressionError
from timeline.options import CompareOptions, ExportOptions, ReadingOptions
from timeline.printable import print_text, say
from timeline.process import ended_by_signals
from timeline.selection import Selection

if TYPE_CHECKING:
    from timeline.reports.comparison_report import ComparisonReport


def run(asked: argparse.Namespace) -> None:
    """Compare two runs, or two parts of one, as the command line asks.

    Raises:
        TimelineError: they cannot be compared; the message says what to do.
    """
    views, prints = fill(ViewOptions, vars(asked)), fill(PrintOptions, vars(asked))
    check_standard_output(prints, asked)
    with ended_by_signals():
        from timeline.commands.compare import compare, find_changes
    show = viewer(views, prints)
    more: dict[str, Any] = {"progress": shown_progress(prints)}
    more |= given_keywords(asked, Selection, CompareOptions, ReadingOptions)
    if views.verdict:
        check_no_file(asked, views)
        del more["markdown"]
        Selection(layers=more.pop("layers"))  # nothing is drawn; a misspelled one is refused
        report = find_changes(asked.base, asked.new, causes=asked.causes, **more)
    else:
        more |= given_keywords(asked, ExportOptions)
        more["csv"], more["markdown"] = table_file(asked.csv), table_file(asked.markdown)
        with timeline_file(more):
            report = compare(asked.base, asked.new, **more)
    with after_writing():
        _print_report(report, asked, prints, opens=show is not None)
        flush()
        if show is not None:
            show(report)
    if report.gate is not None and report.gate.failed:
        raise RegressionError(report.gate.sentence(report.comparison.sides))


def _print_report(
    report: ComparisonReport, asked: argparse.Namespace, prints: PrintOptions, *, opens: bool
) -> None:
    """Print a report as JSON, as a table, or as text.

    If data goes to standard output, text goes to standard error.
    """
    stream = print_data(report, report.comparison.all_operators, prints, asked)
    if asked.markdown == STDOUT:
        from timeline.reports.comparison_report import comparison_markdown

        print_text(comparison_markdown(report))
        stream = stream and sys.stderr
    if stream is None:
        return
    from timeline.reports.terminal import Display
    from timeline.reports.terminal_comparison import comparison_text

    text = comparison_text(
        report.comparison, Display.of(stream), gate=report.gate, verbose=prints.verbose
    )
    print_text(text + "\n", stream)
    say(*written_lines(report, asked, prints), *look_at_lines(report.page), stream=stream)
    if report.outputs and not opens and not is_piped(asked.output):
        say(OPEN_HINT.format(", or add --open"), stream=stream)
