"""Turns a command line into an export, and its report into words and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

from timeline.cli.parser import build_compare_parser, build_parser
from timeline.errors import TimelineError, UsageError
from timeline.printable import command_line, printable_json, say
from timeline.process import Terminated, interrupted_by_signals, signals_held, tune_for_one_command
from timeline.selection import Kind, Selection
from timeline.units import parse_duration_ns

if TYPE_CHECKING:
    from timeline.figures.table import Table
    from timeline.progress import Progress
    from timeline.reports.comparison_report import ComparisonReport
    from timeline.reports.export_report import ExportReport

__all__ = ["main"]

SIGNALLED = 128
"""What shells add to the number of the signal that ended a command."""
OPEN_HINT = "Open: https://ui.perfetto.dev (drag the file in, or add --open)"
COMPARE = "compare"
"""The word that asks for a comparison; a profile of that name is ./compare."""
STDOUT = "-"
"""The file name that stands for standard output."""
FP_START_VARIABLES = ("PROFILING_FP_START", "FP_POINT")
BP_END_VARIABLES = ("PROFILING_BP_END", "BP_POINT")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 written; 1 input, output or data error; 2 usage; 3 the selection is not there; 4 the
        limit or --strict forbids it; 129 its terminal was closed; 130 interrupted; 143
        terminated.
    """
    tune_for_one_command()
    try:
        with interrupted_by_signals():
            words = list(sys.argv[1:] if arguments is None else arguments)
            if words[:1] == [COMPARE]:
                return _compare(build_compare_parser().parse(words[1:]))
            parser = build_parser()
            if "_ARGCOMPLETE" in os.environ:
                from timeline.cli.completion import complete

                complete(parser)
            return _run(parser.parse(words))
    except TimelineError as error:
        first, *more = error.lines()
        say(f"tlexport: {first}", *more, stream=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        what = "terminated" if isinstance(interrupt, Terminated) else "interrupted"
        with contextlib.suppress(OSError):  # a terminal that is closed shows nothing
            say(f"tlexport: {what}; {_outcome(interrupt)}", stream=sys.stderr)
        return SIGNALLED + (
            interrupt.number if isinstance(interrupt, Terminated) else signal.SIGINT
        )
    except OSError as error:
        if error.filename is not None:
            say(f"tlexport: {error.filename}: {error.strerror}.", stream=sys.stderr)
            return 1
        # No file: it is the terminal or pipe that failed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            say(f"tlexport: cannot print: {error.strerror}.", stream=sys.stderr)
        return 1


def _run(asked: argparse.Namespace) -> int:
    _check_prints(asked)
    if asked.completion:
        from timeline.cli.completion import script_lines

        say(*script_lines(asked.completion))
        _flush()
        return 0
    if asked.list:
        return _list(asked)
    with signals_held():  # NumPy takes an interrupt of its import for a broken installation
        from timeline.commands.export import export
    selection = _selection(asked)
    view = _viewer(asked)
    report = export(
        asked.path,
        asked.output,
        selection=selection,
        kind=asked.kind,
        group_by=asked.group_by,
        merge_graphs=asked.merge_graphs,
        scopes=asked.scopes,
        args=asked.args,
        limit=asked.limit,
        fit=asked.fit,
        csv=_table_file(asked),
        report=asked.report,
        png=asked.png,
        force=asked.force,
        strict=asked.strict,
        **_opening(asked),
    )
    with _telling():
        _tell(report, asked)
        _flush()
        if view is not None:
            view(report)
    return 0


@contextlib.contextmanager
def _telling() -> Iterator[None]:
    """While what was written is told: an interrupt does not undo it."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        interrupt.args = ("the timeline was written before.",)
        raise


def _outcome(interrupt: KeyboardInterrupt) -> str:
    """What became of the output of a command that was interrupted."""
    return str(interrupt.args[0]) if interrupt.args else "nothing was written."


def _selection(asked: argparse.Namespace) -> Selection:
    return Selection(
        ranks=asked.ranks,
        graphs=asked.graphs,
        steps=asked.steps,
        window=asked.window,
        layers=asked.layers,
    )


def _table_file(asked: argparse.Namespace) -> str | None:
    """Where the table goes, unless it is printed or not wanted."""
    return None if asked.csv == STDOUT else asked.csv


def _compare(asked: argparse.Namespace) -> int:
    _check_prints(asked)
    with signals_held():
        from timeline.commands.compare import compare
    report = compare(
        asked.base,
        asked.new,
        asked.output,
        selection=_selection(asked),
        kind=asked.kind,
        group_by=asked.group_by,
        merge_graphs=asked.merge_graphs,
        scopes=asked.scopes,
        args=asked.args,
        limit=asked.limit,
        csv=_table_file(asked),
        report=asked.report,
        force=asked.force,
        **_opening(asked),
    )
    with _telling():
        _tell_change(report, asked)
        _flush()
    return 0


def _list(asked: argparse.Namespace) -> int:
    with signals_held():
        from timeline.commands.listing import LISTED, listing
        from timeline.profile import profile_at

    with profile_at(asked.path, _opening(asked), LISTED) as profile:
        found = listing(profile, _selection(asked))
    _print_json(found.to_json()) if asked.json else say(*found.lines())
    _flush()
    return 0


def _check_prints(asked: argparse.Namespace) -> None:
    """Make sure that standard output is asked for one thing only."""
    verbose, listed = getattr(asked, "verbose", False), getattr(asked, "list", False)
    for first, second in (
        (asked.quiet and "-q", verbose and "-v"),
        (asked.json and "--json", asked.csv == STDOUT and "--csv -"),
        (asked.json and "--json", verbose and "-v"),
        (listed and "--list", asked.csv and "--csv"),
    ):
        if first and second:
            raise UsageError(f"{first} and {second} exclude each other.", do="Leave out one.")


def _tell(report: ExportReport, asked: argparse.Namespace) -> None:
    """Print the report: as JSON, as a table, or in words; words give way to a table on stdout."""
    words = _print_data(report, report.step_times, asked)
    if words is None:
        return
    from timeline.reports.terminal import Page, verdict_text

    page = Page.of(words)
    words.write(verdict_text(report.verdict, report.figures, page, verbose=asked.verbose) + "\n")
    drawn = [f"Look at: {own}" for own in (asked.report, asked.png) if own is not None]
    more = report.verbose_lines() if asked.verbose else []
    say(*report.lines(), *more, *drawn, *_see_why(report, asked), stream=words)
    if not (asked.open or asked.offline):
        say(OPEN_HINT, stream=words)


def _print_data(
    report: ExportReport | ComparisonReport, table: Callable[[], Table], asked: argparse.Namespace
) -> TextIO | None:
    """Print warnings, and what programs read; where words go then, if anywhere."""
    if not asked.quiet:
        say(*(f"tlexport: {warning}" for warning in report.warnings), stream=sys.stderr)
    if asked.json:
        _print_json(report.to_json())
        return None
    if asked.csv == STDOUT and sys.stdout is not None:
        sys.stdout.write(table().to_csv())
    return None if asked.quiet else sys.stderr if asked.csv == STDOUT else sys.stdout


def _tell_change(report: ComparisonReport, asked: argparse.Namespace) -> None:
    """Print what changed, in the ways of `_tell`."""
    words = _print_data(report, report.comparison.all_operators, asked)
    if words is None:
        return
    from timeline.reports.terminal import Page
    from timeline.reports.terminal_comparison import comparison_text

    words.write(comparison_text(report.comparison, Page.of(words)) + "\n")
    drawn = [] if report.page is None else [f"Look at: {report.page}"]
    say(*report.lines(), *drawn, OPEN_HINT.replace(", or add --open", ""), stream=words)


def _see_why(report: ExportReport, asked: argparse.Namespace) -> Iterator[str]:
    """The command that shows the slowest step, on the rank where it was slowest, in detail."""
    slowest = report.verdict.step_extreme
    if asked.kind != Kind.SUMMARY.value or slowest is None:
        return
    words = ["tlexport", asked.path, "--ranks", str(slowest.rank), "--steps", str(slowest.slowest)]
    for assigned in asked.assign_rank:
        words += ["--assign-rank", assigned]
    yield f"See why: {command_line([*words, '--kind', 'detail'])}"


def _viewer(asked: argparse.Namespace) -> Callable[[ExportReport], None] | None:
    """What shows the file that will be written; its UI is looked for before there is a file."""
    if not asked.open and not asked.offline:
        return None
    from timeline.viewer import installed_pages, show

    return partial(show, pages=installed_pages() if asked.offline else None, quiet=asked.quiet)


def _print_json(document: bytes) -> None:
    if sys.stdout is not None:
        print(printable_json(document.decode(), sys.stdout.encoding or "utf-8"))


def _flush() -> None:
    """Fail now, where output cannot be printed, and not when Python ends."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _opening(asked: argparse.Namespace) -> dict[str, Any]:
    """How the profile is opened, whatever becomes of it."""
    return {
        "assign_rank": dict(_assignment(text) for text in asked.assign_rank),
        "align": asked.align,
        "offset": dict(_offset(text) for text in asked.offset),
        "fp_start": asked.fp_start or _first_set(FP_START_VARIABLES),
        "bp_end": asked.bp_end or _first_set(BP_END_VARIABLES),
        "jobs": asked.jobs,
        "executor": asked.executor,
        "keep_going": asked.keep_going,
        "progress": _progress(asked),
    }


def _first_set(variables: Sequence[str]) -> str:
    return next((os.environ[name] for name in variables if os.environ.get(name)), "")


def _assignment(text: str) -> tuple[str, int]:
    directory, equals, rank = text.rpartition("=")
    if not equals or not directory or not rank.isdigit():
        raise UsageError(
            f"--assign-rank {text}: there is no rank.", do="Write DIR=RANK, as in PROF_0003=3."
        )
    return directory, int(rank)


def _offset(text: str) -> tuple[int, int]:
    rank, equals, time = text.partition("=")
    if not equals or not rank.isdigit():
        raise UsageError(
            f"--offset {text}: there is no rank.", do="Write RANK=TIME, as in 1=+120us."
        )
    return int(rank), parse_duration_ns(time)


def _progress(asked: argparse.Namespace) -> Progress:
    from timeline.progress import Silent, TerminalLine

    shown = sys.stderr is not None and sys.stderr.isatty() and not asked.quiet
    return TerminalLine() if shown else Silent()
