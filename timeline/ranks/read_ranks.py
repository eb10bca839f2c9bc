"""Reads and draws all selected ranks, joins their clocks and measures what they waited for."""

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
from timeline.ranks.shared_columns import pack_if_many
from timeline.ranks.workers import WorkerPool, worker_pool_for
from timeline.records.not_given import NO_GRAPH
from timeline.selection import SUMMARY_LAYERS, Selection, check_known
from timeline.sources.source import Source, listed_steps
from timeline.tracks.model import element_count
from timeline.tracks.rank_tracks import DrawnRank, RankTracks


def choose_ranks(sources: Sequence[Source], selection: Selection, path: Path) -> tuple[Source, ...]:
    """Return the sources of the selected ranks; all if the selection names no ranks.

    Raises:
        SelectionError: a selected rank does not exist.
    """
    known = [source.identity.rank for source in sources]
    if selection.ranks is None:
        return tuple(sources)
    if not selection.ranks:
        raise SelectionError("no rank is selected.", do="Name one with --ranks.")
    check_known("rank", selection.ranks, known, path)
    return tuple(source for source in sources if source.identity.rank in selection.ranks)


_LEFT_OUT = "Run it without --keep-going, for one of the --ranks, to see each reason."


def check_any(
    sources: Sequence[Source], failures: Mapping[int, str], path: Path, do: str = _LEFT_OUT
) -> None:
    """Check that at least one rank could be read.

    failures: the reason for each rank that was left out; the error quotes the first. do: advice on
    how to see the other reasons.

    Raises:
        SourceError: no rank could be read.
    """
    if not sources:
        raise SourceError(
            path,
            f"no rank can be read. {next(iter(failures.values()))}",
            do=do if len(failures) > 1 else "Check that it can be read and is complete.",
        )


_OF_A_RANK = re.compile(r"rank (\d+): (.+)", re.DOTALL)


def merge_across_ranks(warnings: Iterable[str]) -> Iterator[str]:
    """Yield warnings in order, with those that differ only in the rank merged into one.

    >>> list(merge_across_ranks(["rank 0: no steps.", "one profile.", "rank 1: no steps."]))
    ['ranks 0,1: no steps.', 'one profile.']
    """
    ranks = dict[str, list[int]]()
    for warning in warnings:
        match = _OF_A_RANK.fullmatch(warning)
        if match is None:
            ranks.setdefault(warning, [])
        else:
            ranks.setdefault(match[2], []).append(int(match[1]))
    for text, numbers in ranks.items():
        noun = "rank" if len(set(numbers)) == 1 else "ranks"
        yield f"{noun} {format_ids(sorted(set(numbers)))}: {text}" if numbers else text


LIMITS_IN_MEMORY = 4
"""Multiple of the size limit that all ranks may take before they are coarsened together."""
SLACK_SPREADS = 4
"""Factor from the spread of the ends of collectives after clocks are joined to the error that
clocks of one island may still have."""
LEAST_ELEMENTS_IN_MEMORY = 1 << 24
"""Slices and samples that are never coarsened away: some 800 MB, partly paged out to files."""


@dataclass(frozen=True)
class JoinedRanks:
    """The drawn ranks on one clock, with their sources and requests, and who waits for whom.

    origin_ns: the time that the selection's window counts from, None without a window.
    """

    sources: tuple[Source, ...]
    requests: tuple[RankRequest, ...]
    ranks: tuple[DrawnRank, ...]
    clock: JoinedClock
    waiting: Waiting
    origin_ns: int | None = None
    path: CriticalPath = field(default_factory=CriticalPath)
    """Empty if causes were not requested."""
    bare: tuple[DrawnRank, ...] = ()
    """The ranks before waiting was drawn into them; empty unless a rank was merged when drawn."""
    left_out: tuple[str, ...] = ()
    """Notes on ranks that failed, unless the caller reports them itself."""

    @property
    def facts(self) -> tuple[RankFacts, ...]:
        """Return the facts of each rank."""
        return tuple(rank.facts for rank in self.ranks)

    @property
    def on_disk(self) -> frozenset[int]:
        """Return all ranks of the profile, selected or not."""
        return _on_disk(self.requests)

    @property
    def has_steps(self) -> bool:
        """Return whether every rank with device work has ordinary steps."""
        return all(
            rank.ordinary is not None
            for rank in self.facts
            if rank.overlap_ns["computing_ns"] or rank.overlap_ns["communication_ns"]
        )

    def ordinary(self) -> tuple[tuple[RankFacts, ...], Waiting]:
        """Return the facts of each rank's ordinary steps, and who waits in them.

        A rank without facts of ordinary steps contributes its facts as a whole.
        """
        ordinary = tuple(map(_ordinary_of, self.facts))
        return ordinary, _waiting_of(ordinary, self.clock)

    @property
    def notes(self) -> tuple[str, ...]:
        """Return notes on ranks that were left out and on assumptions about clocks and files."""
        of_ranks = (note for facts in self.facts for note in facts.profile.notes)
        return (*self.left_out, *merge_across_ranks((*self.clock.warnings, *of_ranks)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the notes, and the warnings of the readers of all ranks."""
        of_ranks = (warning for facts in self.facts for warning in facts.profile.warnings)
        return tuple(dict.fromkeys((*self.notes, *merge_across_ranks(of_ranks))))


def read_facts(
    path: Path,
    sources: Sequence[Source],
    reading: ReadingOptions,
    progress: Progress,
    selection: Selection,
    questions: Questions,
) -> JoinedRanks:
    """Read the selected ranks without drawing them, as far as the questions require.

    Raises:
        SelectionError: a selected rank, graph or step does not exist, or the window is empty.
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

    Ranks are coarsened together whenever they take several times the size limit, always in the
    order of `sources`, so that the result does not depend on the number of processes.

    Raises:
        SelectionError: no rank has a selected graph or step, or the window is empty.
        SourceError: a profile cannot be read.
    """
    if request.selection.window is not None:
        return _read_window(sources, request, workers, path)
    _refuse_absent_steps(sources, request, workers, path)
    joined = _read(sources, [request] * len(sources), workers)
    check_any(joined.sources, workers.failures, path)
    check_selection(joined.facts, request.selection, path)
    return joined


def _refuse_absent_steps(
    sources: Sequence[Source], request: RankRequest, workers: WorkerPool, path: Path
) -> None:
    """Refuse steps that no file lists, after reading only what is needed to know all steps.

    Raises:
        SelectionError: no rank has a selected step.
        SourceError: a profile cannot be read.
    """
    absent = request.selection.steps or frozenset()
    for source in sources:
        if not absent or not (listed := listed_steps(source)):
            return
        absent -= listed
    if absent:
        _read_spans(sources, request, SUMMARY_LAYERS, workers, path)


def _read_spans(
    sources: Sequence[Source],
    request: RankRequest,
    layers: frozenset[Layer],
    workers: WorkerPool,
    path: Path,
) -> tuple[list[Source], list[RankFacts]]:
    """Read some layers of all ranks; return the sources that can be read, and their facts.

    Raises:
        SelectionError: no rank has a selected graph or step.
        SourceError: no rank can be read.
    """
    cheap = replace(request.selection, layers=layers, window=None)
    spans_only = replace(request, selection=cheap, draw=False, questions=Questions())
    read = list(workers.results(sources, draw_rank_from_source, [spans_only] * len(sources)))
    here = [source for source, _ in read]
    facts = [rank.facts for rank in _with_collectives_matched([rank for _, rank in read])]
    check_any(here, workers.failures, path)
    check_selection(facts, request.selection, path)
    return here, facts


def _read(
    sources: Sequence[Source],
    requests: Sequence[RankRequest],
    workers: WorkerPool,
    clock: JoinedClock | None = None,
) -> JoinedRanks:
    """Read the ranks that can be read; their clocks are joined unless `clock` is given."""
    ranks = [source.identity.rank for source in sources]
    every = frozenset(ranks)  # one object shared by all requests, which are kept
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
    """Match the collectives of ranks by launch order where names do not identify them."""
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
    # A rank without device tasks has no path, even if a file states how long it computed.
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
    """Move ranks onto one clock, in place and packed, so that no rank is in memory twice."""
    for place, move in enumerate(clock.moves):
        if not move.move.still:  # ranks that stay are packed as they came
            moved = drawn[place].moved(move.move)
            drawn[place] = replace(moved, facts=pack_if_many(moved.facts, len(drawn)))


def _waiting_of(facts: Sequence[RankFacts], clock: JoinedClock) -> Waiting:
    columns = ([move.island for move in clock.moves], [move.doubt_ns for move in clock.moves])
    islands = Islands(*np.array(columns, np.int64).reshape(2, -1))
    spread_ns = max((move.spread_ns or 0 for move in clock.moves), default=0)
    slack_ns = SLACK_SPREADS * spread_ns
    return measure_waiting([rank.collectives for rank in facts], slack_ns, islands)


def _ordinary_of(facts: RankFacts) -> RankFacts:
    """Return the facts of a rank's ordinary steps, with collectives matched between ranks."""
    ordinary = facts.ordinary
    if ordinary is None:
        return facts
    ops = replace(facts.collectives.ops, selected=ordinary.collectives.ops.selected)
    return replace(ordinary, collectives=replace(facts.collectives, ops=ops))


def _with_waiting(
    drawn: list[DrawnRank], waiting: Waiting, requests: Sequence[RankRequest]
) -> tuple[DrawnRank, ...]:
    """Draw the waiting of collectives into the rows of ranks.

    drawn: emptied by this function, so that no rank is in memory twice.
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
        finished = replace(tracks, tracks=with_piece_args(tracks.tracks, facts[place]))
        return pack_if_many(finished, len(facts))

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
    """Find the start and end of the selection over all ranks, then read the window in it."""
    selection = request.selection
    assert selection.window is not None
    spans_ns: list[tuple[int, int]] = []
    for layers in (SUMMARY_LAYERS, SUMMARY_LAYERS | HOST_LAYERS):
        here, facts = _read_spans(sources, request, layers, workers, path)
        clock = _clock_of(here, facts, request.clock)
        moved = [rank.moved(by.move) for rank, by in zip(facts, clock.moves, strict=True)]
        # Host records count only if no rank has device records.
        on_device = [rank.span_ns for rank in moved]
        for of_ranks in (on_device, [rank.host_span_ns for rank in moved]):
            spans_ns = spans_ns or [span_ns for span_ns in of_ranks if span_ns is not None]
        if spans_ns:
            break
    else:
        raise SelectionError(
            "window: the selection holds no records to count from.",
            do="Leave out the window, or select other ranks or steps.",
        )
    origin_ns = min(span[0] for span in spans_ns)
    start_ns, end_ns = selection.window.bounds_ns(origin_ns, max(span[1] for span in spans_ns))
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
    """Read and draw the ranks again, with only the chosen detail.

    Raises:
        TimelineError: a rank fails this time; it is too late to leave it out.
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
    """Read and draw merged ranks again, unmerged inside some windows.

    Args:
        windows_ns: by rank, [start, end) on the joined clock of all ranks.

    Returns:
        All ranks; None if no rank with a window was merged.

    Raises:
        TimelineError: a rank fails this time; it is too late to leave it out.
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
    """Check that every selected graph and step is in some rank.

    Raises:
        SelectionError: one is in no rank.
    """
    if selection.graphs is not None:
        graphs = {graph for facts in ranks for graph in facts.profile.graphs}
        if NO_GRAPH not in selection.graphs:
            graphs -= {NO_GRAPH}
        check_known("graph", selection.graphs, graphs, path)
    if selection.steps is not None:
        steps = {step for facts in ranks for step in facts.profile.steps}
        check_known("step", selection.steps, steps, path)
