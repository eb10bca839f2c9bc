"""The keywords of the library with their types, for `help` and type checkers.

Each keyword belongs to an option in `timeline/options.py`, which declares its default and meaning.
The command line uses only those declarations, and does not load this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    import os

    from timeline.layers import Layer, LayerName
    from timeline.options import Args, Fit
    from timeline.progress import Progress
    from timeline.selection import Align, Ids, Kind, Window


class ReadingKeywords(TypedDict, total=False):
    """Keywords of `open_profile`."""

    assign_rank: Mapping[str, int] | None
    align: Align | Literal["recorded", "collectives", "start", "none"] | None
    offset: Mapping[int, int | str] | None
    fp_start: str
    bp_end: str
    jobs: int | None
    executor: str
    peak_flops: float | str | None
    keep_going: bool
    progress: Progress | None


class SelectionKeywords(TypedDict, total=False):
    """Keywords that select a part of a profile, instead of a Selection."""

    ranks: Ids
    graphs: Ids
    steps: Ids
    window: Window | str | None


class VerdictKeywords(ReadingKeywords, SelectionKeywords, total=False):
    """Keywords of `find_verdict`."""

    causes: bool


class DrawingKeywords(ReadingKeywords, SelectionKeywords, total=False):
    """Keywords of both `export` and `compare`."""

    layers: Iterable[Layer | LayerName] | str | None

    kind: Kind | Literal["summary", "detail"]
    group_by: Literal["rank", "layer"] | None
    merge_graphs: bool
    scopes: bool
    causes: bool
    args: Args | Literal["default", "all", "none"]
    limit: int | str
    max_events: int | str | None
    csv: str | os.PathLike[str] | None
    report: str | os.PathLike[str] | None
    lang: Literal["en", "zh"] | None
    force: bool


class ChangeKeywords(VerdictKeywords, total=False):
    """Keywords of `find_changes`."""

    fail_above: float | str | None
    max_kernels: int | str | None
    map_operators: Mapping[str, str] | str | os.PathLike[str] | None
    match_shapes: bool


class CompareKeywords(DrawingKeywords, total=False):
    """Keywords of `compare`."""

    markdown: str | os.PathLike[str] | None
    fail_above: float | str | None
    max_kernels: int | str | None
    map_operators: Mapping[str, str] | str | os.PathLike[str] | None
    match_shapes: bool


class ExportKeywords(DrawingKeywords, total=False):
    """Keywords of `export`."""

    fit: Fit | Literal["coarsen", "steps", "split", "error"]
    exact_steps: Ids
    strict: bool
