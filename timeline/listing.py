"""What a profile holds: ranks, graphs and steps, with their source, size and clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from timeline.analysis.contents import RankContents, contents_of
from timeline.analysis.steps import StepOperators
from timeline.chosen_ranks import check_any, choose_ranks
from timeline.errors import spell_ids
from timeline.jobs import crew_for
from timeline.profile import Profile
from timeline.rank_records import rank_records
from timeline.records.tables import NO_GRAPH
from timeline.selection import SUMMARY_LAYERS, Selection
from timeline.sources.base import Source, Wanted
from timeline.units import spell_bytes, spell_duration

__all__ = ["Listing", "listing"]

SCHEMA_VERSION = 1
TEXTS = frozenset({"steps", "clock", "source"})
"""Columns that are no numbers."""


@dataclass(frozen=True)
class ListedRank:
    """One rank, the size of its files, and what it holds."""

    source: Source
    size_bytes: int
    contents: RankContents

    @property
    def clock(self) -> str:
        """What its times count from."""
        host = self.source.clock.host or "its host"
        return f"monotonic of {host}" if self.contents.monotonic else "wall"


@dataclass(frozen=True)
class Listing:
    """All ranks of a profile."""

    ranks: tuple[ListedRank, ...]
    notes: tuple[str, ...]

    def to_json(self) -> bytes:
        """The listing as one JSON object."""
        return orjson.dumps(
            {
                "schema": SCHEMA_VERSION,
                "ranks": [_to_dict(rank) for rank in self.ranks],
                "notes": list(self.notes),
            },
            option=orjson.OPT_INDENT_2,
        )

    def lines(self) -> list[str]:
        """A table for people: a row per rank and graph."""
        head = ("rank", "graph", "steps", "tasks", "comm ops", "span", "size", "clock", "source")
        table: list[tuple[str, ...]] = [head]
        for rank in self.ranks:
            for number, (graph, steps) in enumerate(rank.contents.steps.items()):
                own = (
                    str(rank.source.identity.rank),
                    str(rank.contents.tasks),
                    str(rank.contents.communication_ops),
                    spell_duration(rank.contents.span_ns),
                    spell_bytes(rank.size_bytes),
                    rank.clock,
                    _where(rank.source),
                )
                first = own if number == 0 else ("",) * len(own)
                table.append(
                    (
                        first[0],
                        "-" if graph == NO_GRAPH else str(graph),
                        spell_ids(steps),
                        *first[1:],
                    )
                )
        widths = [max(len(row[at]) for row in table) for at in range(len(head))]
        rows = [
            "  ".join(
                cell.ljust(width) if name in TEXTS else cell.rjust(width)
                for name, cell, width in zip(head, row, widths, strict=True)
            )
            for row in table
        ]
        return [*(row.rstrip() for row in rows), *self._rules(), *self.notes]

    def _rules(self) -> Iterator[str]:
        """By which rules time is counted, where the profile tells; a line for each, with ranks."""
        said: dict[str, list[int]] = {}
        for rank in self.ranks:
            for line in _rules_of(rank.contents):
                said.setdefault(line, []).append(rank.source.identity.rank)
        for line, ranks in said.items():
            noun = "rank" if len(ranks) == 1 else "ranks"
            yield f"{noun} {spell_ids(ranks)}: {line}"


def listing(profile: Profile, selection: Selection) -> Listing:
    """List the selected ranks of a profile, and all that they hold.

    Raises:
        SelectionError: a rank is not there.
        SourceError: a profile cannot be read.
    """
    reading = profile.reading
    sources = choose_ranks(profile.sources, selection, profile.path)
    try:
        with crew_for(sources, reading, profile.progress) as crew:
            found = list(crew.shares(sources, _contents, [reading.operators] * len(sources)))
    finally:
        profile.progress.finish()
    check_any([source for source, _ in found], crew.failures, profile.path)
    ranks = (
        ListedRank(source, crew.sizes_bytes[source.identity.rank], contents)
        for source, contents in found
    )
    return Listing(tuple(ranks), (*profile.notes, *crew.left_out()))


def _contents(source: Source, operators: StepOperators) -> RankContents:
    return contents_of(rank_records(source, Wanted(SUMMARY_LAYERS, every_arg=False), operators))


def _rules_of(contents: RankContents) -> Iterator[str]:
    free, communication = contents.free_rule, contents.communication_rule
    if free.evidence:
        yield f"free time by the {free.name} rule, as {free.evidence} tells."
    if communication.of_tasks:
        yield f"communication is the union of HCCL tasks ({communication.evidence})."


def _where(source: Source) -> str:
    return f"{source.identity.directory} ({source.layout})"


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
