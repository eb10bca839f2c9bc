"""The listing of a profile: its runs, ranks, graphs and steps, with sources, sizes and clocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from timeline.analysis.contents import RankContents, describe_contents
from timeline.commands.next_command import typed_path
from timeline.errors import format_ids
from timeline.language import said
from timeline.options import StepOperators
from timeline.printable import cells_of, command_line
from timeline.profile import Profile
from timeline.ranks.rank_work import read_rank
from timeline.ranks.read_ranks import check_any, choose_ranks, merge_across_ranks
from timeline.ranks.workers import worker_pool_for
from timeline.records.not_given import NO_GRAPH
from timeline.reports.valid_json import json_of
from timeline.selection import SUMMARY_LAYERS, Selection
from timeline.sources.finding.discovery import FindingOptions, UnclearCapture
from timeline.sources.finding.runs import FoundRun, format_ranks
from timeline.sources.source import ReadRequest, Source
from timeline.units import ColumnUnit

SCHEMA_VERSION = 1
LISTED = FindingOptions(lists_all=True)
"""Options for finding captures for a listing."""
TEXTS = frozenset({"steps", "clock", "source", "run started", "ranks", "layout", "path"})
"""Names of columns of text, which are aligned to the left."""


@dataclass(frozen=True)
class ListedRank:
    """One rank, the size of its files, and its contents."""

    source: Source
    size_bytes: int
    contents: RankContents

    @property
    def clock(self) -> str:
        """Return the clock of the rank's times, in words."""
        if not self.contents.timed:
            return "none"
        host = self.source.clock.host or "its host"
        return f"monotonic of {host}" if self.contents.monotonic else "wall"


def _unclear_line(source: UnclearCapture) -> str:
    """Return a line on the problem of a capture, with its path if the problem does not have it."""
    where = "" if source.problem.startswith(str(source.path)) else f"{source.path} "
    return f"not clear: {where}{source.problem}"


@dataclass(frozen=True)
class Listing:
    """The ranks of the newest run, all runs, and the problems of unclear captures.

    runs: oldest first; `ranks` belong to the last.
    """

    ranks: tuple[ListedRank, ...]
    notes: tuple[str, ...]
    runs: tuple[FoundRun, ...] = ()
    unclear: tuple[UnclearCapture, ...] = ()

    def to_json(self) -> bytes:
        """Return the listing as one JSON object."""
        return json_of(
            {
                "schema": SCHEMA_VERSION,
                "ranks": [_to_dict(rank) for rank in self.ranks],
                "runs": [_run_to_dict(run, run is self.runs[-1]) for run in self.runs],
                "unclear": [
                    {"source": str(source.path), "problem": source.problem}
                    for source in self.unclear
                ],
                "notes": list(self.notes),
            },
            orjson.OPT_INDENT_2,
        )

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Return lines with a table of runs if there are several, else of ranks and graphs.

        verbose: show the ranks of the newest of several runs too.
        """
        several = len(self.runs) > 1
        newest = self._rank_lines() if self.ranks and (verbose or not several) else []
        return [
            *(self._run_lines() if several else ()),
            *(("", "newest run:") if several and newest else ()),
            *newest,
            *map(_unclear_line, self.unclear),
            *(self._rules() if newest else ()),
            *self.notes,
        ]

    def _rank_lines(self) -> list[str]:
        span = ColumnUnit.of_times(rank.contents.span_ns for rank in self.ranks)
        size = ColumnUnit.of_sizes(rank.size_bytes for rank in self.ranks)
        units = (span.title("span"), size.title("size"))
        head = ("rank", "graph", "steps", "tasks", "comm ops", *units, "clock", "source")
        table: list[tuple[str, ...]] = [head]
        for rank in self.ranks:
            for number, (graph, steps) in enumerate(rank.contents.steps.items()):
                cells = (
                    str(rank.contents.tasks),
                    str(rank.contents.communication_ops),
                    span.format(rank.contents.span_ns),
                    size.format(rank.size_bytes),
                    said(rank.clock, "clock"),
                    f"{rank.source.identity.place} ({rank.source.layout})",
                )
                name = "-" if graph == NO_GRAPH else str(graph)
                row = (str(rank.source.identity.rank), name, format_ids(steps), *cells)
                table.append(row if number == 0 else ("", *row[1:3], *([""] * len(cells))))
        return _aligned(table)

    def _run_lines(self) -> list[str]:
        newest_first = self.runs[::-1]
        rows = [
            (
                run.when,
                format_ids(run.ranks),
                ", ".join(run.layouts),
                str(run.path or said(f"{run.sources[0]} and {len(run.sources) - 1} beside it")),
            )
            for run in newest_first
        ]
        first = next((run.path for run in newest_first if run.path is not None), None)
        words = ["tlexport", "PATH" if first is None else typed_path(first), "--list"]
        table = _aligned([("run started", "ranks", "layout", "path"), *rows])
        return [*table, f"Ranks and steps of a run: {command_line(words)}"]

    def _rules(self) -> Iterator[str]:
        """Yield a line for each rule by which the profiler counts time, with its ranks."""
        ranks_of: dict[str, list[int]] = {}
        for rank in self.ranks:
            for line in _rules_of(rank.contents):
                ranks_of.setdefault(line, []).append(rank.source.identity.rank)
        for line, ranks in ranks_of.items():
            yield f"{format_ranks(ranks)}: {line}"


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table with aligned columns; the first row has their names."""
    head = table[0]
    shown = [list(map(said, head)), *table[1:]]
    widths = [max(cells_of(row[at]) for row in shown) for at in range(len(head))]
    rows = []
    for row in shown:
        blanks = (" " * (width - cells_of(cell)) for cell, width in zip(row, widths, strict=True))
        cells = zip(head, row, blanks, strict=True)
        rows.append(
            "  ".join(one + left if name in TEXTS else left + one for name, one, left in cells)
        )
    return [row.rstrip() for row in rows]


def list_profile(profile: Profile, selection: Selection) -> Listing:
    """List the selected ranks of a profile, with their graphs and steps.

    Raises:
        SelectionError: a selected rank does not exist.
        SourceError: no rank can be read; if only some cannot, notes say so.
    """
    reading, found = profile.reading, profile.found
    if not profile.sources:
        return Listing((), profile.notes, found.runs, found.unclear)
    sources = choose_ranks(profile.sources, selection, profile.path)
    every = replace(reading, keep_going=True)
    try:
        with worker_pool_for(sources, every, profile.progress) as workers:
            read = list(workers.results(sources, _contents, [reading.operators] * len(sources)))
    finally:
        profile.progress.finish()
    here = [source for source, _ in read]
    check_any(here, workers.failures, profile.path, "List one of the --ranks to see its reason.")
    ranks = (
        ListedRank(source, workers.sizes_bytes[source.identity.rank], contents)
        for source, contents in read
    )
    of_readers = merge_across_ranks(note for _, contents in read for note in contents.notes)
    notes = (*profile.notes, *workers.left_out(), *of_readers)
    return Listing(tuple(ranks), notes, found.runs, found.unclear)


def _contents(source: Source, operators: StepOperators) -> RankContents:
    wanted = ReadRequest(SUMMARY_LAYERS, every_arg=False, measures=False)
    return describe_contents(read_rank(source, wanted, operators))


def _rules_of(contents: RankContents) -> Iterator[str]:
    free, communication = contents.free_rule, contents.communication_rule
    if free.evidence:
        yield f"free time by the {free.name} rule, as {free.evidence} tells."
    if communication.of_tasks:
        yield f"communication is the union of HCCL tasks ({communication.evidence})."


def _run_to_dict(run: FoundRun, is_listed: bool) -> dict[str, Any]:
    return {
        "listed": is_listed,
        "ranks": list(run.ranks),
        "layouts": list(run.layouts),
        "start": run.when,
        "start_ns": run.start_ns,
        "end_ns": run.end_ns,
        "path": None if run.path is None else str(run.path),
        "sources": [str(source) for source in run.sources],
    }


def _to_dict(rank: ListedRank) -> dict[str, Any]:
    return {
        "rank": rank.source.identity.rank,
        "graphs": [
            {"graph": None if graph == NO_GRAPH else graph, "steps": list(steps)}
            for graph, steps in rank.contents.steps.items()
        ],
        "tasks": rank.contents.tasks,
        "comm_ops": rank.contents.communication_ops,
        "span_ns": rank.contents.span_ns,
        "bytes": rank.size_bytes,
        "clock": rank.clock,
        "layout": rank.source.layout,
        "source": str(rank.source.identity.directory),
        "evidence": rank.source.identity.evidence,
        "free_rule": rank.contents.free_rule.name,
        "free_evidence": rank.contents.free_rule.evidence or None,
        "communication_rule": rank.contents.communication_rule.name,
        "communication_evidence": rank.contents.communication_rule.evidence or None,
    }
