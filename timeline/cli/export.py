"""The command `tlexport` without a command word: exports, prints a verdict, listing or script."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, cast

from timeline.cli.parser import PrintOptions, ViewOptions, given_keywords
from timeline.cli.printing import (
    OPEN_HINT,
    after_writing,
    check_no_file,
    check_standard_output,
    flush,
    is_piped,
    look_at_lines,
    print_data,
    print_json,
    say_commands,
    say_warnings,
    shown_progress,
    table_file,
    timeline_file,
    viewer,
    warnings_caught,
    written_lines,
)
from timeline.declarations import fill
from timeline.options import ExportOptions, ReadingOptions
from timeline.printable import print_text, say
from timeline.process import ended_by_signals
from timeline.selection import Selection

if TYPE_CHECKING:
    from timeline.keywords import ExportKeywords, ReadingKeywords, VerdictKeywords
    from timeline.reports.export_report import ExportReport


def run(asked: argparse.Namespace) -> None:
    """Run `tlexport` as its options ask.

    Raises:
        TimelineError: the command failed; the message says what to do.
    """
    views, prints = fill(ViewOptions, vars(asked)), fill(PrintOptions, vars(asked))
    check_standard_output(prints, asked)
    if prints.completion is not None:
        from timeline.cli.completion import script_lines

        say(*script_lines(prints.completion))
        flush()
    elif views.verdict:
        _say_verdict(asked, views, prints)
    elif prints.sql:
        from timeline.viewer.queries import queries_text

        print_text(queries_text())
        flush()
    elif views.list:
        _list(asked, prints)
    else:
        _export(asked, views, prints)


def _export(asked: argparse.Namespace, views: ViewOptions, prints: PrintOptions) -> None:
    with ended_by_signals():
        from timeline.commands.export import export
    selection = Selection(**given_keywords(asked, Selection))
    show = viewer(views, prints)
    keywords = given_keywords(asked, ExportOptions, ReadingOptions)
    keywords["csv"] = table_file(asked.csv)
    with timeline_file(keywords):
        report = export(
            asked.path,
            selection=selection,
            operator_steps=prints.json,
            progress=shown_progress(prints),
            **keywords,
        )
    with after_writing():
        _print_report(report, asked, views, prints)
        flush()
        if show is not None:
            show(report)


def _list(asked: argparse.Namespace, prints: PrintOptions) -> None:
    with ended_by_signals():
        from timeline.commands.listing import LISTED, list_profile
        from timeline.profile import profile_at

    keywords = {**given_keywords(asked, ReadingOptions), "progress": shown_progress(prints)}
    with profile_at(asked.path, cast("ReadingKeywords", keywords), LISTED) as profile:
        listing = list_profile(profile, Selection(**given_keywords(asked, Selection)))
    print_json(listing.to_json()) if prints.json else say(*listing.lines(verbose=prints.verbose))
    flush()


def _say_verdict(asked: argparse.Namespace, views: ViewOptions, prints: PrintOptions) -> None:
    check_no_file(asked, views, page=True)
    with ended_by_signals():
        from timeline.commands.verdict import answer

        if asked.report is not None:
            from timeline.commands.export import answer_on_page

    keywords: dict[str, Any] = {
        "causes": asked.causes,
        "progress": shown_progress(prints),
        **given_keywords(asked, ReadingOptions),
    }
    selection = Selection(**given_keywords(asked, Selection))
    with warnings_caught() as remarks:
        if asked.report is not None:
            keywords |= {"report": asked.report, "force": asked.force}
            result = answer_on_page(asked.path, selection, cast("ExportKeywords", keywords))
        else:
            result = answer(asked.path, selection, cast("VerdictKeywords", keywords))
    say_warnings(remarks, result.notes, prints)
    if prints.json:
        print_json(result.filed().to_json())
    elif sys.stdout is not None and not prints.quiet:
        from timeline.reports.terminal import Display
        from timeline.reports.terminal_verdict import verdict_text

        display = Display.of(sys.stdout)
        text = verdict_text(result.verdict, result.figures, display, verbose=prints.verbose)
        print_text(text)
        say_commands([*result.verdict.commands_text(result.see_why), *look_at_lines(asked.report)])
    flush()


def _print_report(
    report: ExportReport, asked: argparse.Namespace, views: ViewOptions, prints: PrintOptions
) -> None:
    """Print a report as JSON, as a table, or as text.

    If a table or a timeline goes to standard output, text goes to standard error.
    """
    stream = print_data(report, report.step_times, prints, asked)
    if stream is None:
        return
    from timeline.reports.terminal import Display
    from timeline.reports.terminal_verdict import verdict_text

    display = Display.of(stream)
    text = verdict_text(report.verdict, report.figures, display, verbose=prints.verbose)
    print_text(text + "\n", stream)
    more = report.verbose_lines() if prints.verbose else []
    page = look_at_lines(asked.report)
    why = report.verdict.commands_text(report.see_why)
    lines = written_lines(report, asked, prints)
    say(*lines, *more, *page, *why, stream=stream)
    if report.outputs and not (views.open or views.offline or is_piped(asked.output)):
        say(OPEN_HINT.format(", or add --open"), stream=stream)
