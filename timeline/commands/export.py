"""Turns what is asked of the library, under the names of the command's flags, into an export."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from timeline.commands.exporting import exported
from timeline.commands.outputs import check_can_draw
from timeline.errors import UsageError
from timeline.options import Args, ExportOptions, Fit
from timeline.profile import Profile, profile_at
from timeline.progress import Progress
from timeline.reports.export_report import ExportReport
from timeline.selection import Align, Kind, Layer, Selection, choice_of
from timeline.sources.finding.discovery import EXPORT, Finding
from timeline.units import parse_bytes

__all__ = ["drawn_of", "export", "opened", "options_of"]


def export(
    profile: Profile | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    selection: Selection | None = None,
    kind: Kind | Literal["summary", "detail"] = "summary",
    group_by: Literal["rank", "layer"] | None = None,
    merge_graphs: bool = True,
    scopes: bool = False,
    args: Args | Literal["default", "all", "none"] = "default",
    limit: int | str = "20MB",
    fit: Fit | Literal["coarsen", "steps", "split", "error"] = "coarsen",
    csv: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    png: str | os.PathLike[str] | None = None,
    force: bool = False,
    strict: bool = False,
    assign_rank: Mapping[str, int] | None = None,
    align: Align | Literal["recorded", "collectives", "start", "none"] | None = None,
    offset: Mapping[int, int | str] | None = None,
    fp_start: str = "",
    bp_end: str = "",
    jobs: int | None = None,
    executor: str = "",
    keep_going: bool = False,
    progress: Progress | None = None,
) -> ExportReport:
    """Write a timeline of a profile, as the command does.

    Args:
        profile: one that is open, or a path as for `open_profile`.
        output: .pftrace, .json, or either with .gz; timeline-KIND-rRANKS.pftrace here if not given.
        selection: which part; all if not given.
        kind: summary has steps and overlap, detail every task too.
        group_by: order of rows; by layer for a summary and by rank for a detail if not given.
        merge_graphs: steps of all graphs in one row, or a row for each.
        scopes: draw the scopes of operator names as a layer.
        args: args on slices; the viewer pays for each.
        limit: largest size of a file in bytes, or as in "20MB"; 0 is none.
        fit: when it is larger: gather what is short, keep the detail of the leading steps, write
            several files, or stop.
        csv: a file for the times of each rank and step, in the columns of step_trace_time.csv.
        report: a file for a page of what was measured, which ends in .html.
        png: a file for a picture of what was measured.
        force: replace an existing file.
        strict: stop when anything would be left out.
        assign_rank, align, offset, fp_start, bp_end, jobs, executor, keep_going, progress: how a
            path is opened; see `open_profile`. A profile that is open has its own.

    Raises:
        TimelineError: nothing was written; the message says what to do.
    """
    options = options_of(
        kind=kind,
        output=output,
        limit=limit,
        fit=fit,
        args=args,
        group_by=group_by,
        merge_graphs=merge_graphs,
        csv=csv,
        report=report,
        png=png,
        force=force,
        strict=strict,
    )
    opening = {
        "assign_rank": assign_rank,
        "align": align,
        "offset": offset,
        "fp_start": fp_start,
        "bp_end": bp_end,
        "jobs": jobs,
        "executor": executor,
        "keep_going": keep_going,
        "progress": progress,
    }
    check_can_draw(options)
    with opened(profile, opening) as own:
        return exported(own, drawn_of(selection, options, scopes=scopes), options)


def options_of(
    *,
    kind: Kind | str,
    output: str | os.PathLike[str] | None,
    limit: int | str,
    args: Args | str,
    group_by: str | None,
    merge_graphs: bool,
    csv: str | os.PathLike[str] | None,
    report: str | os.PathLike[str] | None,
    force: bool,
    fit: Fit | str = "coarsen",
    png: str | os.PathLike[str] | None = None,
    strict: bool = False,
) -> ExportOptions:
    """Options from what is at hand for them.

    Raises:
        UsageError: a value has no meaning.
    """
    return ExportOptions(
        kind=choice_of(Kind, kind, "kind"),
        output=None if output is None else Path(output),
        limit_bytes=_limit_bytes(limit),
        fit=choice_of(Fit, fit, "fit"),
        args=choice_of(Args, args, "args"),
        by_layer=_by_layer(group_by),
        merge_graphs=merge_graphs,
        csv=None if csv is None else Path(csv),
        report=None if report is None else Path(report),
        still=None if png is None else Path(png),
        force=force,
        strict=strict,
    )


def drawn_of(selection: Selection | None, options: ExportOptions, *, scopes: bool) -> Selection:
    """The selection, with scopes among its layers where they are wanted."""
    own = selection or Selection()
    return replace(own, layers=own.layers_of(options.kind) | {Layer.SCOPES}) if scopes else own


@contextlib.contextmanager
def opened(
    profile: Profile | str | os.PathLike[str],
    opening: Mapping[str, Any],
    finding: Finding = EXPORT,
) -> Iterator[Profile]:
    """A profile that is open, or a path that is, as long as it is needed.

    opening: keywords of `open_profile`. finding: what else is asked of finding its captures.

    Raises:
        UsageError: the profile is open, and something is asked that was to be asked before.
        TimelineError: the path cannot be opened.
    """
    if isinstance(profile, Profile):
        _check_not_given(**opening)
        yield profile
        return
    with profile_at(profile, opening, finding) as own:
        yield own


def _check_not_given(**opening: object) -> None:
    """Make sure that nothing is asked of a profile that is open and was to be asked before.

    Raises:
        UsageError: something is.
    """
    for name, value in opening.items():
        if value:
            raise UsageError(f"{name}: this profile is open; say so to open_profile instead.")


def _by_layer(group_by: str | None) -> bool | None:
    """Whether rows are grouped by layer before rank; None leaves it to the kind.

    Raises:
        UsageError: there is no such order.
    """
    if group_by not in (None, "rank", "layer"):
        raise UsageError(f"group_by {group_by!r}: there are rank, layer.")
    return None if group_by is None else group_by == "layer"


def _limit_bytes(limit: int | str) -> int:
    """A limit in bytes.

    Raises:
        UsageError: it is negative, or no size.
    """
    limit_bytes = parse_bytes(limit) if isinstance(limit, str) else limit
    if limit_bytes < 0:
        raise UsageError(f"limit {limit}: a size is not negative; 0 is no limit.")
    return limit_bytes
