"""All ranks of a selection, read and drawn, on one clock and with what they waited for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from timeline.analysis.clocks import JoinedClock, RankClock, join_clocks
from timeline.analysis.path.critical_path import CriticalPath, critical_path
from timeline.analysis.path.rank_path import RankPath
from timeline.analysis.questions import Questions
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.selected_rank import ChosenDetail
from timeline.analysis.waits.launch_order import match_by_order
from timeline.analysis.waits.shared_ops import Islands
from timeline.analysis.waits.waiting import Waiting, measure_waiting
from timeline.errors import SelectionError, SourceError, format_ids
from timeline.layers import HOST_LAYERS, Layer
from timeline.options import ClockOptions, ReadingOptions
from timeline.progress import Progress
from timeline.ranks.rank_work import (
    BYTES_OF_ELEMENT,
    RankRequest,
    coarsen_for_file,
    draw_rank_from_source,
    import_for_workers,
)
from timeline.ranks.shared_columns import kept
from timeline.ranks.workers import WorkerPool, worker_pool_for
from timeline.records.not_given import NO_GRAPH
from timeline.selection import SUMMARY_LAYERS, Selection
from timeline.sources.source import Source
from timeline.tracks.model import element_count
from timeline.tracks.rank_tracks import DrawnRank, RankTracks

_LISTED = {
    "rank": "Profile.ranks lists them.",
    "graph": "Profile.steps() lists them.",
    "step": "Profile.steps() lists them.",
}
"""Where somebody who calls functions finds what there is."""


def choose_ranks(sources: Sequence[Source], selection: Selection, path: Path) -> tuple[Source, ...]:
    """Choose the sources of the selected ranks; all where none is selected.

    Raises:
        SelectionError: a rank is not there.
    """
    known = [source.identity.rank for source in sources]
    if selection.ranks is None:
        return tuple(sources)
    if not selection.ranks:
        raise SelectionError("no rank is selected.", do="Name one with --ranks.")
    check_known("rank", selection.ranks, known, path)
    return tuple(source for source in sources if source.identity.rank in selection.ranks)


def check_known(noun: str, wanted: frozenset[int], known: Iterable[int], path: Path) -> None:
    """Make sure that all ids that are wanted are among those that are there.

    Raises:
        SelectionError: one is not.
    """
    found = set(known)
    absent = wanted - found
    if absent:
        if not found:
            raise SelectionError(f"this profile has no {noun}s; drop --{noun}s.")
        are = "is" if len(absent) == 1 else "are"
        plural = noun if len(absent) == 1 else f"{noun}s"
        near = _nearest(min(absent), found)
        raise SelectionError(
            f"{plural} {format_ids(absent)} {are} not in {path}: found {noun}s {format_ids(found)}"
            + (f"; the nearest are {near}." if "..." in format_ids(found) else "."),
            do="Use --list to see them.",
            python_do=_LISTED[noun],
        )


def _nearest(wanted: int, found: Iterable[int]) -> str:
    return format_ids(sorted(found, key=lambda known: abs(known - wanted))[:2])


_LEFT_OUT = "Run it without --keep-going, for one of the --ranks, to see each reason."


def check_any(
    sources: Sequence[Source], failures: Mapping[int, str], path: Path, do: str = _LEFT_OUT
) -> None:
    """Raise an error if no rank is left.

    failures: why ranks are left out; the error names the first. do: how to see the others.

    Raises:
        SourceError: no rank is left.
    """
    if not sources:
        raise SourceError(
            path,
            f"no rank can be read. {next(iter(failures.values()))}",
            do=do if len(failures) > 1 else "Check that it can be read and is complete.",
        )


_OF_A_RANK = re.compile(r"rank (\d+): (.+)", re.DOTALL)


def said_once(warnings: Iterable[str]) -> Iterator[str]:
    """Return warnings in order, those of ranks that differ only in the rank as one.

    >>> list(said_once(["rank 0: no steps.", "one profile.", "rank 1: no steps."]))
    ['ranks 0,1: no steps.', 'one profile.']
    """
    ranks = dict[str, list[int]]()
    for warning in warnings:
        found = _OF_A_RANK.fullmatch(warning)
        if found is None:
            ranks.setdefault(warning, [])
        else:
            ranks.setdefault(found[2], []).append(int(found[1]))
    for text, of in ranks.items():
        several = sorted(set(of))
        head = f"{'rank' if len(several) == 1 else 'ranks'} {format_ids(several)}: " if of else ""
        yield f"{head}{text}"


LIMITS_IN_MEMORY = 4
"""All ranks together may take so many times the limit before they are coarsened together."""
SLACK_SPREADS = 4
"""Clocks of one island may be off by so many times what is left between ends of collectives."""
LEAST_ELEMENTS_IN_MEMORY = 1 << 24
"""Slices and samples that are left in any case: some 800 MB, of which memory keeps a part."""


@dataclass(frozen=True)
class JoinedRanks:
    """The drawn ranks on one clock, their sources, what was asked of each, and who waits.

    origin_ns is the moment that a window counts from, None without one.
    """

    sources: tuple[Source, ...]
    requests: tuple[RankRequest, ...]
    ranks: tuple[DrawnRank, ...]
    clock: JoinedClock
    waiting: Waiting
    origin_ns: int | None = None
    path: CriticalPath = field(default_factory=CriticalPath)
    """Empty where causes were not asked for."""
    bare: tuple[DrawnRank, ...] = ()
    """The ranks before it was drawn what they wait for, where any was merged before."""
    left_out: tuple[str, ...] = ()
    """What to say of ranks that failed, where nobody else says it."""

    @property
    def facts(self) -> tuple[RankFacts, ...]:
        """Return the facts of each rank."""
        return tuple(rank.facts for rank in self.ranks)

    @property
    def on_disk(self) -> frozenset[int]:
        """Return the ranks of the profile, selected or not."""
        return _on_disk(self.requests)

    @property
    def has_steps(self) -> bool:
        """Return whether each rank that did anything has steps in which it did."""
        return all(
            rank.ordinary is not None
            for rank in self.facts
            if rank.overlap_ns["computing_ns"] or rank.overlap_ns["communication_ns"]
        )

    def ordinary(self) -> tuple[tuple[RankFacts, ...], Waiting]:
        """Return the facts of the ordinary steps of each rank, and who waits in them.

        As far as it was asked for, and each rank tells which those are.
        """
        found = tuple(map(_ordinary_of, self.facts))
        return found, _waiting_of(found, self.clock)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return which ranks are left out, and what was assumed of clocks and by readers."""
        of_ranks = (note for facts in self.facts for note in facts.profile.notes)
        return (*self.left_out, *said_once((*self.clock.warnings, *of_ranks)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The notes, and the warnings of the readers of all ranks."""
        of_ranks = (warning for facts in self.facts for warning in facts.profile.warnings)
        return tuple(dict.fromkeys((*self.notes, *said_once(of_ranks))))


def read_facts(
    path: Path,
    sources: Sequence[Source],
    reading: ReadingOptions,
    progress: Progress,
    selection: Selection,
    questions: Questions,
) -> JoinedRanks:
    """Read what is selected of some ranks, as far as questions need it.

    Raises:
        SelectionError: a rank, a graph, a step or the window is not there.
        SourceError: a profile cannot be read.
    """
    chosen = choose_ranks(sources, selection, path)
    cheap = replace(selection, layers=SUMMARY_LAYERS)
    request = RankRequest(
        cheap,
        reading.operators,
        ranks=len(chosen),
        draw=False,
        clock=reading.clock,
        questions=replace(questions, peak_flop_per_s=reading.peak_flops),
        on_disk=frozenset(source.identity.rank for source in sources),
    )
    with worker_pool_for(chosen, reading, progress) as workers:
        joined = read_ranks(chosen, request, workers, path)
    return replace(joined, left_out=tuple(workers.left_out()))


def read_ranks(
    sources: Sequence[Source], request: RankRequest, workers: WorkerPool, path: Path
) -> JoinedRanks:
    """Read and draw all ranks.

    Ranks are coarsened together whenever they take several times the limit, always in their own
    order, so that the number of processes changes nothing.

    Raises:
        SelectionError: a graph, a step or the window is in no rank.
        SourceError: a profile cannot be read.
    """
    if request.selection.window is not None:
        return _read_window(sources, request, workers, path)
    joined = _read(sources, [request] * len(sources), workers)
    check_any(joined.sources, workers.failures, path)
    check_selection(joined.facts, request.selection, path)
    return joined


def _read(
    sources: Sequence[Source],
    requests: Sequence[RankRequest],
    workers: WorkerPool,
    clock: JoinedClock | None = None,
) -> JoinedRanks:
    """Read the ranks that can be read; their clocks are joined unless `clock` is given."""
    ranks = [source.identity.rank for source in sources]
    every = frozenset(ranks)  # one for all requests: they are kept, and each as long as all ranks
    asked_of = {id(request): replace(request, read_ranks=every) for request in requests}
    requests = [asked_of[id(request)] for request in requests]
    wanted = dict(zip(ranks, requests, strict=True))
    read, drawn = list[Source](), list[DrawnRank]()
    elements = 0
    limit_bytes = requests[0].limit_bytes if requests else 0
    most = max(LEAST_ELEMENTS_IN_MEMORY, LIMITS_IN_MEMORY * limit_bytes // BYTES_OF_ELEMENT)
    if requests and workers.jobs > 1:
        import_for_workers(requests[0])
    for source, rank in workers.results(sources, draw_rank_from_source, requests):
        read.append(source)
        drawn.append(rank)
        elements += element_count(rank.tracks.tracks)
        if limit_bytes and elements > most and len(drawn) > 1:
            workers.progress.report("Merging what is short", 0, 0)
            tracks = coarsen_for_file(tuple(drawn), requests[0], limit_bytes, most)
            drawn = [replace(rank, tracks=rows) for rank, rows in zip(drawn, tracks, strict=True)]
            elements = sum(element_count(rows.tracks) for rows in tracks)
            most = max(most, 2 * elements)
    asked = [wanted[source.identity.rank] for source in read]
    drawn = _with_collectives_matched(drawn)
    if clock is None:
        clock = _clock_of(read, [rank.facts for rank in drawn], requests[0].clock)
    else:
        moves = dict(zip(ranks, clock.moves, strict=True))
        clock = replace(clock, moves=tuple(moves[source.identity.rank] for source in read))
    return _joined(read, asked, drawn, clock)


def _on_disk(requests: Sequence[RankRequest]) -> frozenset[int]:
    return requests[0].on_disk if requests else frozenset()


def _with_collectives_matched(drawn: Sequence[DrawnRank]) -> list[DrawnRank]:
    """Recognise the collectives that ranks have in common, as far as names do not tell."""
    matched = match_by_order([rank.facts.collectives for rank in drawn])
    return [
        replace(rank, facts=replace(rank.facts, collectives=collectives))
        for rank, collectives in zip(drawn, matched, strict=True)
    ]


def _joined(
    sources: Sequence[Source],
    requests: Sequence[RankRequest],
    drawn: list[DrawnRank],
    clock: JoinedClock,
) -> JoinedRanks:
    _move(drawn, clock)
    facts = [rank.facts for rank in drawn]
    waiting = _waiting_of(facts, clock)
    path = CriticalPath()
    # A rank without device tasks has none either where a file tells what it computes.
    if any(request.questions.causes for request in requests) and any(
        len(rank.path.items) for rank in facts
    ):
        path = replace(critical_path(facts, waiting), on_disk=_on_disk(requests))
        for place, rank in enumerate(drawn):
            drawn[place] = replace(rank, facts=replace(rank.facts, path=RankPath()))
        del facts
    bare = tuple(drawn) if any(rank.tracks.floors for rank in drawn) else ()
    return JoinedRanks(
        tuple(sources),
        tuple(requests),
        _with_waiting(drawn, waiting, requests),
        clock,
        waiting,
        path=path,
        bare=bare,
    )


def _move(drawn: list[DrawnRank], clock: JoinedClock) -> None:
    """Move ranks on to one clock; none is in memory twice, or unpacked, for longer than needed."""
    for place, move in enumerate(clock.moves):
        moved = drawn[place].moved(move.move)
        drawn[place] = replace(moved, facts=kept(moved.facts, len(drawn)))


def _waiting_of(facts: Sequence[RankFacts], clock: JoinedClock) -> Waiting:
    columns = ([move.island for move in clock.moves], [move.doubt_ns for move in clock.moves])
    islands = Islands(*np.array(columns, np.int64).reshape(2, -1))
    spread_ns = max((move.spread_ns or 0 for move in clock.moves), default=0)
    slack_ns = SLACK_SPREADS * spread_ns
    return measure_waiting([rank.collectives for rank in facts], slack_ns, islands)


def _ordinary_of(facts: RankFacts) -> RankFacts:
    """Return the facts of the ordinary steps of a rank, with collectives as others know them."""
    ordinary = facts.ordinary
    if ordinary is None:
        return facts
    ops = replace(facts.collectives.ops, selected=ordinary.collectives.ops.selected)
    return replace(ordinary, collectives=replace(facts.collectives, ops=ops))


def _with_waiting(
    drawn: list[DrawnRank], waiting: Waiting, requests: Sequence[RankRequest]
) -> tuple[DrawnRank, ...]:
    """Draw into the rows of ranks what their collectives waited for.

    drawn: is empty then, so that no rank is in memory twice.
    """
    if not any(request.draw for request in requests):
        return tuple(drawn)
    from timeline.analysis.waits.exposed_waiting import (
        Lateness,
        late_by_step,
        split_exposed,
    )
    from timeline.tracks.partition import with_piece_args
    from timeline.tracks.waiting import with_waiting

    facts, rows = [rank.facts for rank in drawn], [rank.tracks for rank in drawn]
    drawn.clear()

    def finish(place: int, tracks: RankTracks) -> RankTracks:
        made = replace(tracks, tracks=with_piece_args(tracks.tracks, facts[place]))
        return kept(made, len(facts))

    late = late_by_step(facts, split_exposed(facts, waiting.waits)[1])
    with_waiting(
        rows,
        [rank.collectives for rank in facts],
        waiting,
        late=[*map(Lateness.of_rank, facts, late)],
        arrows=any(Layer.ARROWS in request.options.layers for request in requests),
        on_disk=_on_disk(requests),
        finish=finish,
    )
    return tuple(map(DrawnRank, facts, rows))


def _clock_of(
    sources: Sequence[Source], facts: Sequence[RankFacts], options: ClockOptions
) -> JoinedClock:
    ranks = [
        RankClock(
            rank.rank,
            source.clock,
            rank.profile.monotonic,
            rank.span_ns,
            rank.collectives,
            rank.profile.untimed_steps,
        )
        for source, rank in zip(sources, facts, strict=True)
    ]
    return join_clocks(ranks, options)


def _read_window(
    sources: Sequence[Source], request: RankRequest, workers: WorkerPool, path: Path
) -> JoinedRanks:
    """Find where the selection begins and ends over all ranks, then read the window in it."""
    selection = request.selection
    assert selection.window is not None
    found: list[tuple[int, int]] = []
    for layers in (SUMMARY_LAYERS, SUMMARY_LAYERS | HOST_LAYERS):
        cheap = replace(selection, layers=layers, window=None)
        spans = replace(request, selection=cheap, draw=False, questions=Questions())
        read = list(workers.results(sources, draw_rank_from_source, [spans] * len(sources)))
        here = [source for source, _ in read]
        facts = [rank.facts for rank in _with_collectives_matched([rank for _, rank in read])]
        check_any(here, workers.failures, path)
        check_selection(facts, selection, path)
        clock = _clock_of(here, facts, request.clock)
        moved = [rank.moved(by.move) for rank, by in zip(facts, clock.moves, strict=True)]
        # The host counts only where no rank has anything of the device.
        on_device = [rank.span_ns for rank in moved]
        for of_ranks in (on_device, [rank.host_span_ns for rank in moved]):
            found = found or [span_ns for span_ns in of_ranks if span_ns is not None]
        if found:
            break
    else:
        raise SelectionError(
            "window: the selection holds no records to count from.",
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
    joined = _read(here, requests, workers, clock)
    check_any(joined.sources, workers.failures, path)
    return replace(joined, origin_ns=origin_ns)


def draw_again(
    joined: JoinedRanks, workers: WorkerPool, chosen: ChosenDetail
) -> tuple[DrawnRank, ...]:
    """Read and draw the ranks again, with nothing but the detail that was chosen.

    Raises:
        TimelineError: a rank fails now; it is too late to leave it out.
    """
    requests = [
        replace(request, chosen=chosen.moved_back(move.move))
        for request, move in zip(joined.requests, joined.clock.moves, strict=True)
    ]
    results = workers.results(joined.sources, draw_rank_from_source, requests, every=True)
    drawn = [rank for _, rank in results]
    _move(drawn, joined.clock)
    return _with_waiting(drawn, joined.waiting, requests)


def draw_exact_again(
    joined: JoinedRanks,
    workers: WorkerPool,
    windows_ns: Mapping[int, tuple[tuple[int, int], ...]],
) -> tuple[DrawnRank, ...] | None:
    """Read and draw those ranks again that were merged before, exact in some windows.

    Args:
        windows_ns: by rank, [start, end) on the clock of all ranks.

    Returns:
        All ranks; None if none was merged before that has a window.

    Raises:
        TimelineError: a rank fails now; it is too late to leave it out.
    """
    again = [
        place
        for place, rank in enumerate(joined.bare)
        if rank.tracks.floors and windows_ns.get(rank.facts.rank)
    ]
    if not again:
        return None
    moves = [joined.clock.moves[place].move for place in again]
    requests = [
        replace(
            joined.requests[place],
            floors=joined.bare[place].tracks.floors,
            exact_ns=tuple(
                (move.back(start_ns), move.back(end_ns))
                for start_ns, end_ns in windows_ns[joined.bare[place].facts.rank]
            ),
        )
        for place, move in zip(again, moves, strict=True)
    ]
    sources = [joined.sources[place] for place in again]
    ranks = list(joined.bare)
    results = workers.results(sources, draw_rank_from_source, requests, every=True)
    for place, move, (_, drawn) in zip(again, moves, results, strict=True):
        ranks[place] = replace(ranks[place], tracks=drawn.tracks.moved(move))
    return _with_waiting(ranks, joined.waiting, joined.requests)


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
