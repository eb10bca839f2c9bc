"""What a profile holds: ranks, graphs and steps, with their source, size and clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from timeline.errors import spell_ids
from timeline.profile import Profile
from timeline.reading import read_facts
from timeline.records.tables import NO_GRAPH
from timeline.selection import Selection
from timeline.sources.base import Source
from timeline.tracks.facts import RankFacts
from timeline.units import spell_bytes, spell_duration

__all__ = ["Listing", "listing"]

SCHEMA_VERSION = 1
TEXTS = frozenset({"steps", "clock", "source"})
"""Columns that are no numbers."""


@dataclass(frozen=True)
class ListedRank:
    """One rank and what it holds; `steps` by graph."""

    source: Source
    size_bytes: int
    steps: dict[int, tuple[int, ...]]
    tasks: int
    communication_ops: int
    span_ns: int
    clock: str


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
            for number, (graph, steps) in enumerate(rank.steps.items()):
                own = (
                    str(rank.source.identity.rank),
                    str(rank.tasks),
                    str(rank.communication_ops),
                    spell_duration(rank.span_ns),
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
        return [*(row.rstrip() for row in rows), *self.notes]


def listing(profile: Profile, selection: Selection) -> Listing:
    """List the selected ranks of a profile, and all that they hold."""
    known = read_facts(
        profile.path,
        profile.sources,
        profile.reading,
        profile.progress,
        Selection(ranks=selection.ranks),
    )
    ranks = zip(known.facts, known.sources, known.sizes_bytes, strict=True)
    return Listing(
        tuple(_listed(facts, source, size_bytes) for facts, source, size_bytes in ranks),
        (*profile.notes, *known.left_out),
    )


def _listed(facts: RankFacts, source: Source, size_bytes: int) -> ListedRank:
    steps = {
        graph: tuple(facts.steps.iteration[facts.steps.graph == graph].tolist())
        for graph in sorted(facts.graphs)
    }
    spans = [(start, end) for start, end in [facts.span_ns or (0, 0)] if end > start]
    if len(facts.steps):
        spans.append((int(facts.steps.start_ns.min()), int(facts.steps.end_ns.max())))
    monotonic = f"monotonic of {source.clock.host or 'its host'}"
    return ListedRank(
        source,
        size_bytes,
        {graph: own for graph, own in steps.items() if own or len(steps) == 1} or {NO_GRAPH: ()},
        facts.tasks,
        facts.communication_ops,
        max((end for _, end in spans), default=0) - min((start for start, _ in spans), default=0),
        monotonic if facts.profile.monotonic else "wall",
    )


def _where(source: Source) -> str:
    return f"{source.identity.directory} ({source.layout})"


def _to_dict(rank: ListedRank) -> dict[str, Any]:
    return {
        "rank": rank.source.identity.rank,
        "graphs": [
            {"graph": None if graph == NO_GRAPH else graph, "steps": list(steps)}
            for graph, steps in rank.steps.items()
        ],
        "tasks": rank.tasks,
        "comm_ops": rank.communication_ops,
        "span_ns": rank.span_ns,
        "bytes": rank.size_bytes,
        "clock": rank.clock,
        "layout": rank.source.layout,
        "source": str(rank.source.identity.directory),
        "evidence": rank.source.identity.evidence,
    }
