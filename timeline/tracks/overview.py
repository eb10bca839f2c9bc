"""Painters of the rows above those of ranks: steps, collectives, and the critical path."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.path.critical_path import CriticalPath, Segments
from timeline.analysis.path.rank_path import PathKind
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.collectives import every_op
from timeline.analysis.waits.waiting import Waits
from timeline.columns.columns import Codes, Int64, Rows
from timeline.columns.distinct import distinct, rows_by_value
from timeline.columns.group_by import GroupBy, group_by, group_numbers
from timeline.columns.strings import NO_NAME, StringPool
from timeline.errors import format_ids
from timeline.layers import SliceKind
from timeline.records.not_given import NO_GRAPH, NO_ID
from timeline.selection import why_unread
from timeline.tracks import descriptions
from timeline.tracks.model import Slices, Track
from timeline.tracks.painter import ArgColumn, Painter, SliceTable, integers, names
from timeline.tracks.root_rows import COLLECTIVES, CRITICAL_PATH, STEPS, SlowStep
from timeline.tracks.summary import rounded_percent, spent_args
from timeline.units import format_short

LENGTHS = "How long they took"


@dataclass(frozen=True)
class _Steps:
    """The steps of all ranks in order of time, and the period of each on each rank.

    Periods (n,), by rank: rank, graph, step, start_ns, end_ns, and row, the index among the rank's
    steps. which: (n,) index of the step that a period belongs to. first: (k,) index of the first
    period of each step.
    """

    rank: Int64
    row: Int64
    graph: Int64
    step: Int64
    start_ns: Int64
    end_ns: Int64
    which: Rows
    first: Rows

    @classmethod
    def of(cls, facts: Sequence[RankFacts]) -> _Steps:
        """Find the steps of these ranks.

        Ranks number their graphs separately, so a step is matched by its number alone unless a rank
        has several graphs.
        """
        periods = [np.zeros((6, 0), np.int64), *map(_periods, facts)]
        rank, row, graph, step, start_ns, end_ns = np.concatenate(periods, axis=1)
        keys = (graph, step) if _has_several_graphs(facts) else (step,)
        groups = group_by(len(step), keys)
        order = np.lexsort((groups.first, groups.least(start_ns), groups.greatest(end_ns)))
        place = np.empty(len(order), np.intp)
        place[order] = np.arange(len(order))
        which, first = place[groups.group], groups.first[order]
        return cls(rank, row, graph, step, start_ns, end_ns, which, first)

    def __len__(self) -> int:
        return len(self.first)

    @property
    def length_ns(self) -> Int64:
        """Return the length of each period, (n,)."""
        return self.end_ns - self.start_ns

    @property
    def begin_ns(self) -> Int64:
        """Return the begin of each step, (k,): on its first rank, or the end of the step before.

        The step before ends where its last rank ends.
        """
        first_ns, stop_ns = GroupBy(self.which, self.first).least(self.start_ns), self.stop_ns
        return np.maximum(first_ns, np.append(first_ns[:1], stop_ns[:-1]))

    @property
    def stop_ns(self) -> Int64:
        """Return the end of each step on its last rank, (k,)."""
        return GroupBy(self.which, self.first).greatest(self.end_ns)

    def first_by(self, values: Int64) -> Rows:
        """Return the period with the least value for each step, (k,); the first of equal ones."""
        order = np.lexsort((values, self.which))
        return order[np.searchsorted(self.which[order], np.arange(len(self)))]


def _periods(facts: RankFacts) -> Int64:
    """Return the periods of one rank: rank, row, graph, step, start and end of each, (6, n)."""
    steps, count = facts.steps, len(facts.steps)
    return np.stack(
        [
            np.full(count, facts.rank, np.int64),
            np.arange(count),
            steps.graph,
            steps.iteration,
            facts.recorded.begin_ns,
            facts.recorded.end_ns,
        ]
    )


def paint_overview(
    painter: Painter, facts: Sequence[RankFacts], slowest: SlowStep | None = None
) -> None:
    """Draw the steps of all ranks, and their lengths below; nothing if there are no steps."""
    steps = _Steps.of(facts)
    if not len(steps):
        return
    start_ns, end_ns = steps.begin_ns, steps.stop_ns
    drawn = _drawn(steps, painter.strings, facts, slowest)
    meaning = descriptions.STEPS_OF_ALL_RANKS if len(facts) > 1 else descriptions.STEPS_OF_ONE_RANK
    root = painter.add_stacked_row(STEPS, None, 0, drawn, meaning)
    lengths = painter.strings.codes(_length_labels(steps))
    painter.add_flat_row(
        LENGTHS,
        root,
        1,
        SliceTable(start_ns, end_ns, lengths, SliceKind.STEP),
        descriptions.LENGTHS_OF_STEPS,
    )


def difference(step: str, before_ns: int, after_ns: int, unchanged: str) -> str:
    """Return a label such as "Step 3 slower by 1.250 ms (+4.0%)"."""
    delta_ns = after_ns - before_ns
    if not delta_ns:
        return f"{step} {unchanged}"
    word = "slower" if delta_ns > 0 else "faster"
    share = f" ({delta_ns / before_ns:+.1%})" if before_ns else ""
    return f"{step} {word} by {abs(delta_ns) / 1e6:.3f} ms{share}"


def _length_labels(steps: _Steps) -> Iterator[str]:
    """Yield the label of each step: its longest period compared with the median of all steps."""
    lengths_ns = GroupBy(steps.which, steps.first).greatest(steps.length_ns).tolist()
    median_ns = statistics.median_low(lengths_ns)
    for step, length_ns in zip(steps.step[steps.first].tolist(), lengths_ns, strict=True):
        if len(steps) == 1:
            yield f"{length_ns / 1e6:.3f} ms"
        else:
            yield difference(f"Step {step}", median_ns, length_ns, "is the median")


def paint_steps_of_run(
    painter: Painter, parent: int, order: int, facts: Sequence[RankFacts], run: str
) -> None:
    """Draw the steps of all ranks of one of several runs on a row named after the run."""
    steps = _Steps.of(facts)
    if not len(steps):
        return
    drawn = _drawn(steps, painter.strings, facts, None)
    painter.add_flat_row(run, parent, order, drawn, descriptions.STEPS_OF_ALL_RANKS)


def step_starts_ns(facts: Sequence[RankFacts]) -> dict[tuple[int, int], int]:
    """Return the begin of each step on its first rank, by graph and step number.

    The graph is NO_GRAPH unless a rank has several graphs.
    """
    steps = _Steps.of(facts)
    graphs = steps.graph[steps.first].tolist()
    if not _has_several_graphs(facts):
        graphs = [NO_GRAPH] * len(steps)
    numbers = steps.step[steps.first].tolist()
    return dict(zip(zip(graphs, numbers, strict=True), steps.begin_ns.tolist(), strict=True))


def _has_several_graphs(facts: Sequence[RankFacts]) -> bool:
    return any(len(distinct(rank.steps.graph)) > 1 for rank in facts)


def _drawn(
    steps: _Steps, strings: StringPool, facts: Sequence[RankFacts], slowest: SlowStep | None
) -> SliceTable:
    graph, step = steps.graph[steps.first], steps.step[steps.first]
    several = len(distinct(graph)) > 1 and len(distinct(step)) < len(steps)
    is_slowest = np.zeros(len(steps), np.bool_)
    if slowest is not None:
        is_slowest = step == slowest.step
        if several and slowest.graph is not None:
            is_slowest &= graph == slowest.graph
    labels = [
        (f"Graph {of} Step {number}" if several else f"Step {number}")
        + (" (slowest)" if slow else "")
        for of, number, slow in zip(graph.tolist(), step.tolist(), is_slowest.tolist(), strict=True)
    ]
    args = [integers("iteration", step)]
    args += _comparison(steps) if len(facts) > 1 else _spent(steps, facts)
    names = strings.codes(labels)
    return SliceTable(steps.begin_ns, steps.stop_ns, names, SliceKind.STEP, args)


def _comparison(steps: _Steps) -> list[ArgColumn]:
    length_ns = steps.length_ns
    slow, fast = steps.first_by(-length_ns), steps.first_by(length_ns)
    slowest_ns, fastest_ns = length_ns[slow], length_ns[fast]
    spread_percent = rounded_percent(slowest_ns - fastest_ns, np.maximum(fastest_ns, 1))
    return [
        integers("slowest_rank", steps.rank[slow]),
        integers("fastest_rank", steps.rank[fast]),
        integers("slowest_ns", slowest_ns),
        integers("fastest_ns", fastest_ns),
        integers("spread_percent", spread_percent),
    ]


def _spent(steps: _Steps, facts: Sequence[RankFacts]) -> list[ArgColumn]:
    if not len(steps):
        return []
    (rank,) = facts
    return spent_args(
        rank.step_totals,
        steps.row[steps.first],
        np.bincount(steps.which, minlength=len(steps)) == 1,
        records_copies=rank.free_parts.copies_ns is not None,
    )


def paint_collectives(painter: Painter, facts: Sequence[RankFacts], waits: Waits) -> None:
    """Draw the collectives of several ranks, by communicator; nothing without any.

    Each is drawn from its first arrival to its last end, with its longest wait. The communicator
    that took most of such waits comes first.
    """
    ops, rank, _ = every_op([one.collectives for one in facts])
    places = np.searchsorted(rank, waits.rank) + waits.row
    joined, rank = ops.take(places), rank[places]
    # Ops of one key that cannot be one op were told apart, and have different last ranks.
    collective = group_by(len(waits), [joined.key, waits.last, waits.last_row])
    shown = np.flatnonzero(collective.count() > 1)
    if not len(shown):
        return
    order = np.lexsort((waits.waited_ns, collective.group))
    longest = order[np.searchsorted(collective.group[order], shown, side="right") - 1]
    pools = [painter.strings.codes(one.collectives.strings) for one in facts]
    name, label = np.array(
        [
            (pools[on][op], pools[on][group])
            for on, op, group in zip(
                *(values[longest].tolist() for values in (rank, joined.name, joined.group)),
                strict=True,
            )
        ],
        np.int32,
    ).T
    every = SliceTable(
        collective.least(joined.start_ns)[shown],
        collective.greatest(joined.end_ns)[shown],
        name,
        SliceKind.COMMUNICATION_OP,
        [
            integers("waited_ns", waits.waited_ns[longest]),
            integers("last_rank", waits.last_rank[longest], NO_ID),
            integers("ranks", collective.count()[shown]),
        ],
    )
    root = painter.add_group(COLLECTIVES, None, 0, descriptions.COLLECTIVES)
    numbers = np.array([one.rank for one in facts], np.int64)[rank]
    by_communicator = [
        (-int(waits.waited_ns[longest[rows]].sum()), communicator, rows)
        for communicator, rows in rows_by_value(joined.communicator[longest])
    ]
    for order_of, (_, communicator, rows) in enumerate(
        sorted(by_communicator, key=lambda one: one[:2])
    ):
        members = format_ids(numbers[joined.communicator == communicator].tolist())
        called = f"{painter.strings[label[rows[0]]] or 'Group'}: ranks {members}"
        painter.add_flat_row(
            called, root, order_of, replace(every, rows=rows), descriptions.COLLECTIVES
        )


MOST_PATH_ARROWS = 2000
"""Maximum number of arrows between ranks, at the longest stays: more would be unreadable."""


def with_critical_path(tracks: Sequence[Track], path: CriticalPath) -> tuple[Track, ...]:
    """Add the rows of the critical path after the tracks, with higher ids.

    One row has every segment. Rows below it, one per rank, have the stays of the path there, and
    arrows lead from rank to rank.
    """
    if not len(path.segments):
        return tuple(tracks)
    painter = Painter(list(tracks))
    strings = painter.strings
    arrow = 1 + max((track.last_arrow for track in tracks), default=0)
    root = painter.add_stacked_row(
        CRITICAL_PATH, None, 0, _drawn_path(path, strings), descriptions.CRITICAL_PATH
    )
    stays = _Stays.of(path.segments)
    table = _drawn_stays(path, stays, strings)
    first = len(painter.tracks)
    by_rank = list(rows_by_value(stays.rank))
    lanes = [rows for _, rows in by_rank]
    for order, (rank, rows) in enumerate(by_rank):
        # The name differs from that of the rank's row: old viewers look rows up by name alone.
        painter.add_stacked_row(
            f"On {_named_rank(path, rank, is_read=bool(stays.profiled[rows[0]]))}",
            root,
            order,
            replace(table, rows=rows),
            descriptions.PATH_OF_RANK,
        )
    _connect(painter.tracks, first, lanes, stays, arrow)
    return tuple(painter.tracks)


def _named_rank(path: CriticalPath, rank: int, *, is_read: bool) -> str:
    if rank == NO_ID:
        return "a rank that is not known"
    return f"rank {rank}" if is_read else f"rank {rank}, {why_unread(rank, path.on_disk)}"


def _drawn_path(path: CriticalPath, strings: StringPool) -> SliceTable:
    segments = path.segments
    what = strings.codes(path.strings)[segments.name]
    kinds = strings.codes(kind.label for kind in PathKind)
    return SliceTable(
        segments.start_ns,
        segments.end_ns,
        _labels(path, strings),
        SliceKind.CRITICAL_PATH,
        [
            integers("iteration", path.steps.step[segments.path], NO_ID),
            integers("rank", segments.rank, NO_ID),
            names("kind", kinds[segments.kind]),
            names("name", what),
        ],
    )


def _labels(path: CriticalPath, strings: StringPool) -> Codes:
    """Return the label of each segment; labels of equal segments are formatted once."""
    segments = path.segments
    has_name = np.isin(segments.kind, [PathKind.BETWEEN_TASKS, PathKind.NOT_PROFILED], invert=True)
    name = np.where(has_name, segments.name, NO_NAME)
    group = group_numbers(
        len(segments), [segments.rank, segments.kind, name, segments.call_ns, segments.profiled * 1]
    )
    _, first = np.unique(group, return_index=True)
    one_of_each = zip(
        segments.rank[first].tolist(),
        segments.kind[first].tolist(),
        name[first].tolist(),
        segments.call_ns[first].tolist(),
        segments.profiled[first].tolist(),
        strict=True,
    )
    codes = strings.codes(
        _label(
            _named_rank(path, rank, is_read=is_read),
            PathKind(kind),
            path.strings[code],
            call_ns,
            is_read=is_read,
        )
        for rank, kind, code, call_ns, is_read in one_of_each
    )
    return codes[group]


def _label(rank: str, kind: PathKind, what: str, call_ns: int, *, is_read: bool) -> str:
    if kind is PathKind.NOT_PROFILED and not is_read:
        return rank
    doing = kind.words
    if kind is PathKind.HOST and what:
        return f"{rank}: {doing}, {format_short(call_ns)} in {what}"
    return f"{rank}: {doing}, {what}" if what else f"{rank}: {doing}"


class _Stays:
    """Stays of a path: consecutive segments of one path on one rank, in order of time.

    start_ns, end_ns, rank, profiled, path: (k,). kinds_ns: (k, kinds) time by kind of segment.
    """

    def __init__(self, segments: Segments, first: Rows, stay: Rows) -> None:
        self.start_ns = segments.start_ns[first]
        self.end_ns = segments.end_ns[np.append(first[1:], len(segments)) - 1]
        self.rank = segments.rank[first]
        self.profiled = segments.profiled[first]
        self.path = segments.path[first]
        self.kinds_ns = np.zeros((len(first), len(PathKind)), np.int64)
        np.add.at(self.kinds_ns, (stay, segments.kind), segments.end_ns - segments.start_ns)

    @classmethod
    def of(cls, segments: Segments) -> _Stays:
        """Find the stays of all segments, of which there is at least one."""
        begins = np.ones(len(segments), np.bool_)
        begins[1:] = (segments.rank[1:] != segments.rank[:-1]) | (
            segments.path[1:] != segments.path[:-1]
        )
        return cls(segments, np.flatnonzero(begins), np.cumsum(begins) - 1)


def _drawn_stays(path: CriticalPath, stays: _Stays, strings: StringPool) -> SliceTable:
    """Return the stays on ranks as slices named after the two kinds with most time in each."""
    most = np.argsort(-stays.kinds_ns, axis=1, kind="stable")[:, :2]
    largest = np.take_along_axis(stays.kinds_ns, most, axis=1)
    labels = strings.codes(
        ", ".join(
            f"{PathKind(kind).words} {format_short(time_ns)}"
            for kind, time_ns in zip(kinds, times_ns, strict=True)
            if time_ns
        )
        for kinds, times_ns in zip(most.tolist(), largest.tolist(), strict=True)
    )
    return SliceTable(
        stays.start_ns,
        stays.end_ns,
        labels,
        SliceKind.CRITICAL_PATH,
        [
            integers("iteration", path.steps.step[stays.path], NO_ID),
            *(
                integers(f"{kind.label}_ns", np.where(time_ns > 0, time_ns, NO_ID), NO_ID)
                for kind, time_ns in zip(PathKind, stays.kinds_ns.T, strict=True)
            ),
        ],
    )


def _connect(
    tracks: list[Track], first: int, lanes: Sequence[Rows], stays: _Stays, arrow: int
) -> None:
    """Draw arrows to the longest stays, each from the stay before it on another rank."""
    moves = np.flatnonzero(
        (stays.rank[1:] != stays.rank[:-1]) & (stays.path[1:] == stays.path[:-1])
    )
    length_ns = stays.end_ns[moves + 1] - stays.start_ns[moves + 1]
    moves = np.sort(moves[np.argsort(-length_ns, kind="stable")[:MOST_PATH_ARROWS]])
    number = np.arange(len(moves)) + arrow
    stay = np.concatenate([moves, moves + 1])
    ends = np.concatenate([number, number])
    for row, lane in enumerate(lanes):
        at = np.searchsorted(lane, stay)
        here = np.flatnonzero((at < len(lane)) & (lane[np.minimum(at, len(lane) - 1)] == stay))
        content = tracks[first + row].content
        assert isinstance(content, Slices)
        content = content.connected(at[here], ends[here])
        tracks[first + row] = replace(tracks[first + row], content=content)
