"""Options for reading, comparing, drawing and writing profiles.

To add an option, add a field to one of the dataclasses, and its keyword to a TypedDict of
`timeline/keywords.py`. The parser, its help, completion and the signatures of the library follow. A
field has the name of its flag, with the unit if it has one.
"""

from __future__ import annotations

import enum
import math
import operator
import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from timeline.declarations import NO_COMPLETION, Completion, Group, InCompare, member_of, option
from timeline.errors import UsageError
from timeline.language import LANGUAGES
from timeline.ranges import check_id, check_offset
from timeline.selection import Align, Ids, Kind
from timeline.units import (
    check_range,
    parse_bytes,
    parse_count,
    parse_duration_ns,
    parse_ids,
    parse_whole,
)

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Fit(enum.Enum):
    """The treatment of a selection that is larger than the limit."""

    COARSEN = "coarsen"
    """Cover all of it, at the finest time resolution that fits."""
    STEPS = "steps"
    """Keep the detail of the most important steps."""
    SPLIT = "split"
    """Write several files, which together have everything."""
    ERROR = "error"
    """Write nothing, and raise an error."""


class Args(enum.Enum):
    """The set of args on slices."""

    DEFAULT = "default"
    ALL = "all"
    NONE = "none"


GroupBy: TypeAlias = Literal["rank", "layer"]
"""Outermost grouping of the rows of the timeline."""
DEFAULT_LIMIT_BYTES = 20 * 1024 * 1024
DEFAULT_MAX_EVENTS = {Kind.SUMMARY: 500_000, Kind.DETAIL: 2_000_000}
"""Number of events that a viewer loads in a few seconds; a detail is worth a longer wait."""
LARGEST_LIMIT = 1 << 53
"""Largest limit: limits are compared as floats, which hold all integers up to this one."""
LEAST_BARE_LIMIT = 1000
"""Smallest limit in bytes that may be written without a unit."""
LEAST_MAX_KERNELS = 4
"""Smallest --max-kernels: replacing operators with fewer kernels would show nothing more."""


def _values(choices: type[enum.Enum]) -> tuple[str, ...]:
    return tuple(choice.value for choice in choices)


def _read_group_by(group_by: str | None) -> str:
    if group_by not in (None, "rank", "layer"):
        raise UsageError(f"group_by {group_by!r}: use rank or layer.")
    return group_by or "rank"


def _number(
    name: str,
    parse: Callable[[str], int | None] = parse_whole,
    least: int = 0,
    most: int | None = None,
    do: str = "",
) -> Callable[[object], int | None]:
    """Return a function that reads a number within bounds, or a string with it; None stays None.

    do: the advice of the error about another value.
    """
    bounds = f"from {least} " + ("on" if most is None else f"to {most}")

    def read(value: Any) -> int | None:
        if value is None:
            return None
        try:
            number = parse(value.strip()) if isinstance(value, str) else operator.index(value)
        except TypeError:
            number = None
        if number is None or number < least or (most is not None and number > most):
            raise UsageError(f"{name} {value}: it is not an integer {bounds}.", do=do)
        return number

    return read


def _parse_limit(text: str) -> int:
    """Return a size in bytes; refuse a number of bytes that no file fits in, such as 20."""
    size_bytes = parse_bytes(text)
    if text.strip().isdigit() and 0 < size_bytes < LEAST_BARE_LIMIT:
        raise UsageError(f"limit {text}: that is {text} bytes; did you mean {text}MB?")
    return size_bytes


_PREFIXES = {"": 1, "G": 10**9, "T": 10**12, "P": 10**15}


def _read_flops(given: float | str | None) -> int:
    """Return operations per second, from a number or a text such as 312T; 0 for None and 0.

    Raises:
        UsageError: it is neither, or less than 1.
    """
    if given is None or given == 0:
        return 0
    pattern = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([GTP]?)(?:FLOPS?(?:/s)?)?"
    match = re.fullmatch(pattern, str(given).strip(), re.IGNORECASE)
    flops = float(match[1]) * _PREFIXES[match[2].upper()] if match else math.inf
    if not 1 <= flops < LARGEST_LIMIT * _PREFIXES["P"]:
        raise UsageError(
            f"peak-flops {given}: it is not a number of FLOP/s from 1 on.",
            do="Write it as 312T or 312e12.",
        )
    return int(flops)


def _format_flops(flops: int) -> list[str]:
    prefix, size = next(one for one in reversed(_PREFIXES.items()) if not flops % one[1])
    return [f"{flops // size}{prefix}"]


def _read_exact_steps(steps: Ids) -> tuple[int, ...] | None:
    """Return steps in the order in which they were passed; None for automatic choice."""
    if steps is None:
        return None
    if isinstance(steps, str):
        parts = [parse_ids(part, "exact-steps") for part in steps.split(",")]
        return tuple(dict.fromkeys(step for part in parts for step in sorted(part or ())))
    check_range("exact-steps", steps)
    numbers = tuple(dict.fromkeys([steps] if isinstance(steps, int) else steps))
    for step in numbers:
        check_id("exact-steps", step)
    return numbers


def _read_path(path: str | os.PathLike[str] | None) -> Path | None:
    if path is not None and "\0" in str(path):
        raise UsageError(
            f"{str(path)!r} is not a file name: it has a zero byte.", do="Use another name."
        )
    return None if path is None else Path(path)


def _read_offset(offset: Mapping[int, int | str] | None) -> dict[int, int]:
    return {
        rank: parse_duration_ns(time) if isinstance(time, str) else time
        for rank, time in _read_mapping("offset", offset).items()
    }


def _read_mapping(keyword: str, mapping: Mapping[_Key, _Value] | None) -> dict[_Key, _Value]:
    """Return the value of a keyword as a dict, which is empty for None.

    Raises:
        TypeError: the value is not a mapping.
    """
    if mapping is None:
        return {}
    if not isinstance(mapping, Mapping):
        raise TypeError(f"{keyword} is a mapping, and not {type(mapping).__name__}")
    return dict(mapping)


def _parse_assignments(texts: list[str]) -> dict[str, int]:
    pairs = [(text, *text.rpartition("=")[::2]) for text in texts]
    form = "DIR=RANK, as in PROF_0003=3"
    return {
        directory: _rank_in(f"--assign-rank {text}", number if directory else "", form)
        for text, directory, number in pairs
    }


def _parse_offsets(texts: list[str]) -> dict[int, int]:
    pairs = [(text, *text.partition("=")) for text in texts]
    form = "RANK=TIME, as in 1=+120us"
    return {
        _rank_in(f"--offset {text}", number if equals else "", form): parse_duration_ns(time)
        for text, number, equals, time in pairs
    }


def _rank_in(where: str, number: str, form: str) -> int:
    rank = parse_whole(number)
    if rank is None:
        raise UsageError(f"{where}: it has no rank.", do=f"Write {form}.")
    return rank


def _read_share(share: float | str | None) -> float | None:
    """Return a share, passed as a number or as a string with a percentage."""
    if share is None:
        return None
    if isinstance(share, str):
        text = share.strip()
        try:
            number = float(text.removesuffix("%")) / 100 if text.endswith("%") else math.nan
        except ValueError:
            number = math.nan
    else:
        number = float(share)
    if not 0 <= number < math.inf:
        raise UsageError(
            f"fail-above {share}: it is not a share by which a step may be longer.",
            do="Write a percentage, as in 5%.",
        )
    return number


def _read_operator_names(
    names: Mapping[str, str] | str | os.PathLike[str] | None,
) -> Mapping[str, str]:
    """Return new names by old ones, passed as a mapping or as a JSON file."""
    if names is None:
        return {}
    where, content = "map-operators", names
    if isinstance(names, (str, os.PathLike)):
        import json  # imported late, for a fast `--help`

        where = f"map-operators {os.fspath(names)}"
        try:
            content = json.loads(Path(names).read_bytes())
        except OSError as error:
            raise UsageError(f"{where}: {error.strerror}.", do=_MAP_HINT) from None
        except ValueError:
            raise UsageError(f"{where}: it is not valid JSON.", do=_MAP_HINT) from None
    if not isinstance(content, Mapping) or not all(
        isinstance(text, str) for pair in content.items() for text in pair
    ):
        raise UsageError(f"{where}: it is not an object of names.", do=_MAP_HINT)
    return dict(content)


def _read_language(language: str | None) -> str | None:
    """Return the language of output, None for that of the command."""
    if language not in (None, *LANGUAGES):
        raise UsageError(
            f"lang: there is no {language!r}.", do=f"Use one of {', '.join(LANGUAGES)}."
        )
    return language


_MAP_HINT = 'Give a JSON object of old and new names, as in {"aten::conv2d": "aten::convolution"}.'
_OUTPUT_HELP = ".pftrace, .json, or either with .gz; - prints a .pftrace (default: {} here)"


@dataclass(frozen=True)
class ExportOptions:
    """Options for drawing and writing a profile; a Selection chooses the part to draw.

    scopes: draw the scopes of operator names as a layer. limit_bytes: maximum size of a file; 0 for
    no limit. max_events: maximum number of slices, samples and ends of arrows in a file; None for
    as many as viewers can load, or any number without a limit of bytes. exact_steps: steps that
    stay exact when others do not; None for automatic choice. csv: a file for the times of each rank
    and step. report: a file for an HTML report. causes: say why devices wait and idle, for which
    HCCL tasks and host calls are read even if they are not drawn.
    """

    kind: Kind = option(
        "--kind",
        group=Group.DRAW,
        often=True,
        help="summary: steps and overlap; detail: every task too (default: summary)",
        metavar="KIND",
        default=Kind.SUMMARY.value,
        choices=_values(Kind),
        read=member_of(Kind, "kind"),
    )
    group_by: GroupBy = option(
        "--group-by",
        group=Group.DRAW,
        help="rows by rank, or by layer (default: rank)",
        metavar="WHAT",
        default="rank",
        choices=("rank", "layer"),
        read=_read_group_by,
    )
    merge_graphs: bool = option(
        "--merge-graphs",
        group=Group.DRAW,
        help="steps of all graphs in one row, or a row for each (default: one)",
        default=True,
    )
    scopes: bool = option(
        "--scopes",
        group=Group.DRAW,
        help="draw the scopes of operator names as a layer",
        default=False,
    )
    args: Args = option(
        "--args",
        group=Group.DRAW,
        help="args on slices: default (a short set), all or none; each arg costs file size "
        "and load time",
        metavar="SET",
        default=Args.DEFAULT.value,
        choices=_values(Args),
        read=member_of(Args, "args"),
    )
    causes: bool = option(
        "--causes",
        group=Group.DRAW,
        help="say why devices wait and idle, for which HCCL tasks and host calls are read too "
        "(default: yes)",
        default=True,
    )
    output: Path | None = option(
        "-o",
        "--output",
        group=Group.OUTPUT,
        often=True,
        help=_OUTPUT_HELP.format("timeline-PROFILE-KIND-rRANKS.pftrace"),
        metavar="FILE",
        parse=Path,
        read=_read_path,
        compare=InCompare(_OUTPUT_HELP.format("compare-BASE-NEW-KIND.pftrace")),
    )
    limit_bytes: int = option(
        "--limit",
        group=Group.OUTPUT,
        often=True,
        help="largest size of the file; 0 is none (default: 20MB)",
        metavar="SIZE",
        default="20MB",
        read=_number("limit", _parse_limit, most=LARGEST_LIMIT, do="0 for none."),
        completion=Completion({"20MB": "the default", "0": "no limit"}),
    )
    max_events: int | None = option(
        "--max-events",
        group=Group.OUTPUT,
        help="most slices, samples and ends of arrows in the file; 0 is any number (default: "
        "500K in a summary, 2M in a detail; none with --limit 0)",
        metavar="N",
        read=_number("max-events", parse_count, most=LARGEST_LIMIT, do="0 for none."),
        completion=Completion({"500K": "of a summary", "2M": "of a detail", "0": "no limit"}),
    )
    fit: Fit = option(
        "--fit",
        group=Group.OUTPUT,
        help="when it is larger: coarsen merges short slices, steps keeps the detail of the "
        "most important steps, split writes several files, error stops (default: coarsen)",
        metavar="HOW",
        default=Fit.COARSEN.value,
        choices=_values(Fit),
        read=member_of(Fit, "fit"),
        compare=None,
    )
    exact_steps: tuple[int, ...] | None = option(
        "--exact-steps",
        group=Group.OUTPUT,
        help="steps that stay exact when others are merged or left out (default: the slowest and "
        "the median of the rank that slows the others, then more)",
        metavar="STEPS",
        read=_read_exact_steps,
        completion=NO_COMPLETION,
        compare=None,
    )
    csv: Path | None = option(
        "--csv",
        group=Group.PRINT,
        often=True,
        help="also write the times of each rank and step, in the columns of step_trace_time.csv; "
        "- prints them",
        metavar="FILE",
        read=_read_path,
        compare=InCompare("also write all operators as a table; - prints them", Group.OUTPUT),
    )
    report: Path | None = option(
        "--report",
        group=Group.REPORT,
        often=True,
        help="also write an HTML report; with --verdict nothing else",
        metavar="FILE.html",
        parse=Path,
        read=_read_path,
        compare=InCompare(group=Group.OUTPUT),
    )
    lang: str | None = option(
        "--lang",
        group=Group.PRINT,
        help="language of all that people read: en or zh (default: that of the locale)",
        metavar="LANG",
        choices=LANGUAGES,
        read=_read_language,
    )
    force: bool = option(
        "--force",
        group=Group.OUTPUT,
        often=True,
        help="replace an existing file",
        default=False,
        compare=InCompare("replace existing files"),
    )
    strict: bool = option(
        "--strict",
        group=Group.OUTPUT,
        help="stop, with exit code 4, when anything but arrows would be lost or merged",
        default=False,
        compare=None,
    )

    @property
    def most_events(self) -> int:
        """Return the maximum number of slices, samples and ends of arrows in a file; 0 for any."""
        if self.max_events is not None:
            return self.max_events
        return DEFAULT_MAX_EVENTS[self.kind] if self.limit_bytes else 0

    @property
    def bounds_memory(self) -> bool:
        """Return whether files are also limited by the memory of a viewer."""
        return bool(self.limit_bytes) and self.max_events is None

    @property
    def groups_by_layer(self) -> bool:
        """Return whether rows are grouped by layer, then by rank."""
        return self.group_by == "layer"


@dataclass(frozen=True)
class CompareOptions:
    """Options of comparisons in addition to those of exports.

    max_kernels: operators that launched more kernels are replaced by the operators inside them;
    None for any number. map_operators: names of operators and modules in the comparison, by the
    names in either run. match_shapes: distinguish operators by shapes. markdown: a file for a short
    summary for a merge request. fail_above: the share by which a step may be longer before the gate
    fails; None for no gate. The gate does not fail with fewer than five steps, except without any:
    then the times of whole runs are compared.
    """

    markdown: Path | None = option(
        "--markdown",
        group=Group.OUTPUT,
        often=True,
        help="also write a summary for a merge request, as GitHub-flavoured Markdown; - prints it",
        metavar="FILE.md",
        read=_read_path,
    )
    fail_above: float | None = option(
        "--fail-above",
        group=Group.OUTPUT,
        often=True,
        help="end with exit code 5 when the median step is longer by more than that, and the "
        "quartiles of both runs, of five steps or more, do not overlap",
        metavar="PERCENT",
        read=_read_share,
        completion=Completion({"5%": "", "10%": ""}),
    )
    max_kernels: int | None = option(
        "--max-kernels",
        group=Group.DRAW,
        help=f"compare operators that launched at most this many kernels, {LEAST_MAX_KERNELS} or "
        "more: larger ones are replaced by those inside them (default: the outermost)",
        metavar="N",
        read=_number(
            "max-kernels", least=LEAST_MAX_KERNELS, do="Write one, as in --max-kernels 10."
        ),
        completion=NO_COMPLETION,
    )
    map_operators: Mapping[str, str] = option(
        "--map-operators",
        group=Group.DRAW,
        help="a JSON object of names of operators and modules, with the names to compare them by",
        metavar="FILE.json",
        read=_read_operator_names,
    )
    match_shapes: bool = option(
        "--match-shapes",
        group=Group.DRAW,
        help="compare operators by the shapes of their inputs too",
        default=False,
    )


@dataclass(frozen=True)
class ClockOptions:
    """Options for putting ranks on one clock.

    align: the method; None for collectives if they can be trusted, else recorded clocks. offset_ns:
    by rank, an offset from its recorded clock that replaces any correction.
    """

    align: Align | None = option(
        "--align",
        group=Group.CLOCK,
        help="how to put ranks on one clock: recorded uses the clocks in profiles, collectives "
        "corrects these by the ends of shared collectives, start lets all ranks begin together, "
        "none moves nothing (default: collectives if they can be trusted, else recorded)",
        metavar="HOW",
        choices=_values(Align),
        read=lambda align: None if align is None else member_of(Align, "align")(align),
        format=lambda align: [align.value],
    )
    offset_ns: Mapping[int, int] = option(
        "--offset",
        group=Group.CLOCK,
        help="move a rank from its recorded clock, as in 1=+120us; may be repeated",
        metavar="RANK=TIME",
        repeated=_parse_offsets,
        read=_read_offset,
        format=lambda offset_ns: [f"{rank}={time_ns}ns" for rank, time_ns in offset_ns.items()],
    )

    def of_ranks(self, ranks: Collection[int]) -> ClockOptions:
        """Return the options with the offsets of these ranks only."""
        kept = {rank: time_ns for rank, time_ns in self.offset_ns.items() if rank in ranks}
        return replace(self, offset_ns=kept)


@dataclass(frozen=True)
class StepOperators:
    """Names of the operators that begin forward and end backward; "" to detect them."""

    fp_start: str = option(
        "--fp-start",
        group=Group.DRAW,
        help="operator that begins forward, where steps are not marked "
        "(default: $PROFILING_FP_START, else found)",
        metavar="OPERATOR",
        default="",
        variables=("PROFILING_FP_START", "FP_POINT"),
        format=lambda operator: [operator],
        completion=NO_COMPLETION,
    )
    bp_end: str = option(
        "--bp-end",
        group=Group.DRAW,
        help="operator that ends backward, where steps are not marked "
        "(default: $PROFILING_BP_END, else found)",
        metavar="OPERATOR",
        default="",
        variables=("PROFILING_BP_END", "BP_POINT"),
        format=lambda operator: [operator],
        completion=NO_COMPLETION,
    )


@dataclass(frozen=True)
class ReadingOptions:
    """Options for finding and reading a profile.

    assign_rank: ranks by directory, for captures that do not state them. clock: options for putting
    ranks on one clock. operators: used if steps are not marked. jobs: number of processes that read
    ranks; None for one per core, or just this process for a small profile. executor: address of a
    Dask scheduler that is used instead. peak_flops: FLOP/s of a device at
    its peak, 0 if not given. keep_going: leave out ranks that fail.
    """

    assign_rank: Mapping[str, int] = option(
        "--assign-rank",
        group=Group.SELECT,
        help="the rank of a capture that does not state it; may be repeated",
        metavar="DIR=RANK",
        repeated=_parse_assignments,
        read=partial(_read_mapping, "assign_rank"),
        format=lambda assigned: [f"{directory}={rank}" for directory, rank in assigned.items()],
        completion=Completion(directories=True),
    )
    clock: ClockOptions = field(default_factory=ClockOptions)
    operators: StepOperators = field(default_factory=StepOperators)
    jobs: int | None = option(
        "-j",
        "--jobs",
        group=Group.WORK,
        help="processes that read ranks (default: one per core; 1 for a small profile)",
        metavar="N",
        read=_number("jobs", least=1, do="Write a number of processes."),
        completion=NO_COMPLETION,
    )
    executor: str = option(
        "--executor",
        group=Group.WORK,
        help="read ranks on a Dask cluster that sees the same files",
        metavar="dask://HOST:PORT",
        default="",
        completion=NO_COMPLETION,
    )
    peak_flops: int = option(
        "--peak-flops",
        group=Group.REPORT,
        help="FLOP/s of a device at its peak, such as 312T, if the profile does not state it",
        metavar="FLOPS",
        default=0,
        read=_read_flops,
        format=_format_flops,
        completion=NO_COMPLETION,
    )
    keep_going: bool = option(
        "--keep-going",
        group=Group.WORK,
        help="leave out ranks that cannot be read, and say which",
        default=False,
    )

    def __post_init__(self) -> None:
        """Check ranks and offsets.

        Raises:
            UsageError: a rank or an offset is out of range.
        """
        for directory, rank in self.assign_rank.items():
            check_id(f"the rank of {directory},", rank)
        for rank, offset_ns in self.clock.offset_ns.items():
            check_offset(f"the offset of rank {rank}", offset_ns)
