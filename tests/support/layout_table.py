"""A table of what each layout holds, from the tracks of the same run in every layout."""

from __future__ import annotations

import enum
from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from simulator.model import RankRun, Run
from tests.support.layout_tracks import RankTracks, Span, read_tracks
from tests.support.profile_shelf import Profile
from timeline.records.not_given import NO_GRAPH
from timeline.sources.finding.captures import find_captures
from timeline.sources.formats import FORMATS


class Held(enum.IntEnum):
    """How much of a run a layout holds of one kind of records."""

    NOTHING = 0
    PART = 1
    ALL = 2


MARKS = {Held.NOTHING: "", Held.PART: "(✓)", Held.ALL: "✓"}


@dataclass(frozen=True)
class ReadLayout:
    """A run in one layout: its name in `--list`, its tracks by rank, and how much they hold.

    place: where it stands among layouts, of which the best is first.
    """

    name: str
    place: int
    run: Run
    ranks: Mapping[int, RankTracks]
    held: Mapping[str, Held]


def read_layout(profile: Profile) -> ReadLayout:
    """Read all ranks of a profile; what it holds is what all of them do."""
    name, ranks = read_tracks(profile)
    held = {
        column: _joined(share(profile.run, tracks) for tracks in ranks.values())
        for column, share in COLUMNS.items()
    }
    place = FORMATS.index(find_captures(profile.path).captures[0].format)
    return ReadLayout(name, place, profile.run, ranks, held)


def table_lines(layouts: Iterable[ReadLayout]) -> Iterator[str]:
    """A table in Markdown: a row per name of a layout, what all its versions hold in full as ✓."""
    rows: dict[str, list[ReadLayout]] = {}
    for layout in sorted(layouts, key=lambda one: one.place):
        rows.setdefault(layout.name, []).append(layout)
    yield f"| layout | {' | '.join(COLUMNS)} | clock |"
    yield f"|---|{':-:|' * len(COLUMNS)}---|"
    for name, versions in rows.items():
        marks = [MARKS[_joined(version.held[column] for version in versions)] for column in COLUMNS]
        (clock,) = {tracks.clock for version in versions for tracks in version.ranks.values()}
        yield f"| {name} | {' | '.join(marks)} | {clock} |"


def _joined(several: Iterable[Held]) -> Held:
    found = list(several)
    if len(set(found)) == 1:
        return found[0]
    return Held.PART


def _some(given: Sequence[bool]) -> Held:
    if given and all(given):
        return Held.ALL
    return Held.PART if any(given) else Held.NOTHING


def _of(found: Multiset[Span], wanted: Multiset[Span]) -> Held:
    return Held.ALL if not wanted - found else Held.PART if found else Held.NOTHING


def _kernel_spans(run: Run, rank: RankRun) -> Multiset[Span]:
    return Multiset(
        (run.wall_ns(task.start_ns), run.wall_ns(task.end_ns))
        for one in rank.iterations
        for task, _ in one.kernels
    )


def _kernels(run: Run, tracks: RankTracks) -> Held:
    return _of(Multiset(list(tracks.kernels)), _kernel_spans(run, tracks.rank))


def _others(run: Run, tracks: RankTracks) -> Held:
    """What does not compute: copies, events, and each task of communication on its stream."""
    wanted = Multiset(
        (run.wall_ns(task.start_ns), run.wall_ns(task.end_ns))
        for one in tracks.rank.iterations
        for task in one.tasks
    )
    return _of(tracks.others, wanted - _kernel_spans(run, tracks.rank))


def _attributes(*names: str) -> Callable[[Run, RankTracks], Held]:
    def held(_run: Run, tracks: RankTracks) -> Held:
        return _some([bool(kernel.keys() & set(names)) for kernel in tracks.kernels.values()])

    return held


def _graphs(run: Run, tracks: RankTracks) -> Held:
    of_steps = bool((tracks.records.steps.graph != NO_GRAPH).any())
    return max(_attributes("graph")(run, tracks), Held.PART if of_steps else Held.NOTHING)


def _steps(_run: Run, tracks: RankTracks) -> Held:
    return _some([step.id in tracks.steps for step in tracks.rank.steps])


def _parts(_run: Run, tracks: RankTracks) -> Held:
    return _some([name in tracks.parts for name in ("REDUCE", "GET_NEXT")])


def _ops(run: Run, tracks: RankTracks) -> Held:
    wanted = Multiset(
        (run.wall_ns(op.start_ns), run.wall_ns(op.end_ns))
        for one in tracks.rank.iterations
        for op in one.collectives
    )
    return _of(Multiset(list(tracks.ops)), wanted)


def _planes(run: Run, tracks: RankTracks) -> Held:
    wanted = Multiset(
        (run.wall_ns(task.start_ns), run.wall_ns(task.end_ns))
        for one in tracks.rank.iterations
        for op in one.collectives
        for task in op.tasks
    )
    return _of(Multiset(span for span, *_ in tracks.planes.elements()), wanted)


def _calls(run: Run, tracks: RankTracks) -> Held:
    """All calls of CANN or of the framework; GPUs have no queue of their own."""
    rank = tracks.rank
    calls = [call for call in rank.framework_calls if call.category not in ("enqueue", "dequeue")]
    for layer, wanted in (("CANN", list(rank.cann_calls)), ("Python", calls)):
        spans = Multiset(span for span, *_ in tracks.calls.get(layer, Multiset()).elements())
        if (
            not Multiset((run.wall_ns(one.start_ns), run.wall_ns(one.end_ns)) for one in wanted)
            - spans
        ):
            return Held.ALL
    return Held.PART if tracks.calls else Held.NOTHING


def _arrows(_run: Run, tracks: RankTracks) -> Held:
    return Held.ALL if len(tracks.records.flows) else Held.NOTHING


def _counters(_run: Run, tracks: RankTracks) -> Held:
    return Held.ALL if tracks.counters else Held.NOTHING


COLUMNS: dict[str, Callable[[Run, RankTracks], Held]] = {
    "kernels": _kernels,
    "other tasks": _others,
    "names": _attributes("name", "scope"),
    "op types": _attributes("op_type", "launched_by"),
    "shapes": _attributes("input_shapes"),
    "streams": _attributes("stream"),
    "graphs": _graphs,
    "steps": _steps,
    "step parts": _parts,
    "comm. ops": _ops,
    "planes": _planes,
    "host calls": _calls,
    "arrows": _arrows,
    "counters": _counters,
}
"""How much of a run each column of the table says a layout holds."""
