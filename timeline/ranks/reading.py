"""Turns sources and a selection into the shares of all ranks, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from timeline.analysis.clocks import JoinedClock, RankClock, join_clocks
from timeline.analysis.launch_order import matched_by_order
from timeline.analysis.leading import Leading
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waiting import Waiting, waiting_of
from timeline.errors import SelectionError
from timeline.options import ClockOptions, ReadingOptions
from timeline.progress import Progress
from timeline.ranks.chosen_ranks import check_any, check_known, choose_ranks
from timeline.ranks.rank_work import BYTES_OF_ELEMENT, Request, gathered, share_of
from timeline.ranks.workers import Crew, crew_for
from timeline.records.tables import NO_GRAPH
from timeline.selection import SUMMARY_LAYERS, Layer, Selection
from timeline.sources.source import Source
from timeline.tracks.drawn_rank import DrawnRank
from timeline.tracks.model import element_count
from timeline.tracks.waiting import with_waiting

__all__ = [
    "JoinedShares",
    "KnownRanks",
    "check_selection",
    "read_facts",
    "read_shares",
    "redrawn",
]

FAN_IN = 4
"""So many times the limit may be held of all ranks before they are gathered together."""
SLACK_SPREADS = 4
EVERY_NAME = 1 << 62
LEAST_HELD = 1 << 24
"""Slices and samples that may be held in any case: some 800 MB, of which memory keeps a part."""


@dataclass(frozen=True)
class JoinedShares:
    """The shares of all ranks on one clock, their sources, what was asked, and who waits.

    origin_ns is the moment that a window counts from, None without one.
    """

    sources: tuple[Source, ...]
    requests: tuple[Request, ...]
    shares: tuple[DrawnRank, ...]
    clock: JoinedClock
    waiting: Waiting
    origin_ns: int | None = None

    @property
    def facts(self) -> tuple[RankFacts, ...]:
        """What is known of each rank."""
        return tuple(share.facts for share in self.shares)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What readers and the joining of clocks have to say."""
        own = (warning for facts in self.facts for warning in facts.profile.warnings)
        return (*self.clock.warnings, *own)


@dataclass(frozen=True)
class KnownRanks:
    """What is known of ranks that are not drawn, on one clock; and what must be said of them."""

    facts: tuple[RankFacts, ...]
    waiting: Waiting
    left_out: tuple[str, ...]
    warnings: tuple[str, ...]


def read_facts(
    path: Path,
    sources: Sequence[Source],
    reading: ReadingOptions,
    progress: Progress,
    selection: Selection,
    *,
    by_name: bool = False,
) -> KnownRanks:
    """Read what is selected of some ranks, as far as figures need it.

    by_name: whether operators are told apart by name, and not by type alone.

    Raises:
        SelectionError: a rank, a graph, a step or the window is not there.
        SourceError: a profile cannot be read.
    """
    chosen = choose_ranks(sources, selection, path)
    cheap = replace(selection, layers=SUMMARY_LAYERS)
    request = Request(
        cheap,
        reading.operators,
        ranks=len(chosen),
        draw=False,
        clock=reading.clock,
        named_operators=EVERY_NAME if by_name else 0,
    )
    with crew_for(chosen, reading, progress) as crew:
        joined = read_shares(chosen, request, crew, path)
    return KnownRanks(joined.facts, joined.waiting, crew.left_out(), joined.warnings)


def read_shares(
    sources: Sequence[Source], request: Request, crew: Crew, path: Path
) -> JoinedShares:
    """Read and draw all ranks.

    Ranks are gathered together whenever they hold several times the limit, always in their own
    order, so that the number of processes changes nothing.

    Raises:
        SelectionError: a graph, a step or the window is in no rank.
        SourceError: a profile cannot be read.
    """
    if request.selection.window is not None:
        return _read_window(sources, request, crew, path)
    joined = _read(sources, [request] * len(sources), crew)
    check_any(joined.sources, crew.failures, path)
    check_selection(joined.facts, request.selection, path)
    return joined


def _read(
    sources: Sequence[Source],
    requests: Sequence[Request],
    crew: Crew,
    clock: JoinedClock | None = None,
) -> JoinedShares:
    """The shares of the ranks that can be read; clocks are joined by them if not by `clock`."""
    ranks = [source.identity.rank for source in sources]
    wanted = dict(zip(ranks, requests, strict=True))
    read, shares = list[Source](), list[DrawnRank]()
    held = 0
    limit_bytes = requests[0].limit_bytes if requests else 0
    most = max(LEAST_HELD, FAN_IN * limit_bytes // BYTES_OF_ELEMENT)
    for source, share in crew.shares(sources, share_of, requests):
        read.append(source)
        shares.append(share)
        held += element_count(share.tracks.tracks)
        if limit_bytes and held > most and len(shares) > 1:
            crew.progress.report("Gathering what is short", 0, 0)
            tracks = gathered(tuple(shares), requests[0], limit_bytes, most)
            shares = [replace(own, tracks=rows) for own, rows in zip(shares, tracks, strict=True)]
            held = sum(element_count(own.tracks) for own in tracks)
            most = max(most, 2 * held)
    asked = [wanted[source.identity.rank] for source in read]
    shares = _with_collectives_matched(shares)
    if clock is None:
        clock = _clock_of(read, [share.facts for share in shares], requests[0].clock)
    else:
        moves = dict(zip(ranks, clock.moves, strict=True))
        clock = replace(clock, moves=tuple(moves[source.identity.rank] for source in read))
    return _joined(read, asked, shares, clock)


def _with_collectives_matched(shares: Sequence[DrawnRank]) -> list[DrawnRank]:
    """The shares with the collectives that ranks share recognised, as far as names do not tell."""
    matched = matched_by_order([share.facts.collectives for share in shares])
    return [
        replace(share, facts=replace(share.facts, collectives=own))
        for share, own in zip(shares, matched, strict=True)
    ]


def _joined(
    sources: Sequence[Source],
    requests: Sequence[Request],
    shares: Sequence[DrawnRank],
    clock: JoinedClock,
) -> JoinedShares:
    moved = tuple(share.moved(move.move) for share, move in zip(shares, clock.moves, strict=True))
    waiting = waiting_of([share.facts.collectives for share in moved], _slack_ns(clock))
    return JoinedShares(
        tuple(sources), tuple(requests), _with_waiting(moved, waiting, requests), clock, waiting
    )


def _slack_ns(clock: JoinedClock) -> int:
    """How far clocks may be off: several times what is left between ends of collectives."""
    return SLACK_SPREADS * max((move.spread_ns or 0 for move in clock.moves), default=0)


def _with_waiting(
    shares: Sequence[DrawnRank], waiting: Waiting, requests: Sequence[Request]
) -> tuple[DrawnRank, ...]:
    """The shares with what their collectives waited for in their rows."""
    if not any(request.draw for request in requests):
        return tuple(shares)
    drawn = with_waiting(
        [share.tracks for share in shares],
        [share.facts.collectives for share in shares],
        waiting,
        arrows=any(Layer.ARROWS in request.options.layers for request in requests),
    )
    return tuple(replace(share, tracks=rows) for share, rows in zip(shares, drawn, strict=True))


def _clock_of(
    sources: Sequence[Source], facts: Sequence[RankFacts], options: ClockOptions
) -> JoinedClock:
    ranks = [
        RankClock(own.rank, source.clock, own.profile.monotonic, own.span_ns, own.collectives)
        for source, own in zip(sources, facts, strict=True)
    ]
    return join_clocks(ranks, options)


def _read_window(
    sources: Sequence[Source], request: Request, crew: Crew, path: Path
) -> JoinedShares:
    """Find where the selection begins and ends over all ranks, then read the window in it."""
    selection = request.selection
    assert selection.window is not None
    cheap = replace(selection, layers=SUMMARY_LAYERS, window=None)
    spans = replace(request, selection=cheap, draw=False)
    read = list(crew.shares(sources, share_of, [spans] * len(sources)))
    here = [source for source, _ in read]
    facts = [share.facts for share in _with_collectives_matched([share for _, share in read])]
    check_any(here, crew.failures, path)
    check_selection(facts, selection, path)
    clock = _clock_of(here, facts, request.clock)
    moved = [own.moved(by.move) for own, by in zip(facts, clock.moves, strict=True)]
    found = [own.span_ns for own in moved if own.span_ns is not None]
    if not found:
        raise SelectionError(
            "window: the selection holds no device records to count from.",
            do="Leave out the window, or select other ranks or steps.",
        )
    origin_ns = min(span[0] for span in found)
    start_ns, end_ns = selection.window.bounds_ns(origin_ns, max(span[1] for span in found))
    requests = [
        replace(
            request,
            selection=replace(selection, window=None),
            window_ns=(by.move.back(start_ns), by.move.back(end_ns)),
        )
        for by in clock.moves
    ]
    joined = _read(here, requests, crew, clock)
    check_any(joined.sources, crew.failures, path)
    return replace(joined, origin_ns=origin_ns)


def redrawn(joined: JoinedShares, crew: Crew, leading: Leading) -> tuple[DrawnRank, ...]:
    """Read and draw the ranks again, with detail in their leading part only.

    Raises:
        TimelineError: a rank fails now; it is too late to leave it out.
    """
    requests = [
        replace(request, leading=leading.moved_back(move.move))
        for request, move in zip(joined.requests, joined.clock.moves, strict=True)
    ]
    drawn = crew.shares(joined.sources, share_of, requests, every=True)
    shares = [share for _, share in drawn]
    moved = [share.moved(move.move) for share, move in zip(shares, joined.clock.moves, strict=True)]
    return _with_waiting(moved, joined.waiting, requests)


def check_selection(ranks: Sequence[RankFacts], selection: Selection, path: Path) -> None:
    """Make sure that every graph and step that was asked for is in some rank.

    Raises:
        SelectionError: one is not.
    """
    if selection.graphs is not None:
        known = {graph for facts in ranks for graph in facts.profile.graphs}
        asked_none = selection.graphs & {NO_GRAPH}
        check_known("graph", selection.graphs, (known - {NO_GRAPH}) | (known & asked_none), path)
    if selection.steps is not None:
        steps = {step for facts in ranks for step in facts.profile.steps}
        check_known("step", selection.steps, steps, path)
