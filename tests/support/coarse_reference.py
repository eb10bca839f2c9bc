"""What a resolution must make of slices, one by one, as the specification says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timeline.fitting.coarsen import Resolution
from timeline.tracks.model import MERGED, Coarse, Samples, Slices

Names = tuple[tuple[str, int, int], ...]
"""Name, count and summed length, ascending by name; empty for a slice that is itself."""


@dataclass(frozen=True)
class Element:
    """One element: its interval, the slice that it is or MERGED, its sums and its names.

    outer is the element around it, None for none.
    """

    start_ns: int
    end_ns: int
    row: int
    count: int
    busy_ns: int
    names: Names
    outer: Element | None


def parents(starts: Sequence[int], ends: Sequence[int]) -> list[int]:
    """The innermost slice around each of nested slices, -1 for none.

    Of equal slices the one in an earlier row is around the other. A slice without length lies in
    what is open at its moment: what starts there is, what ends there is not.
    """
    rows = range(len(starts))

    def holds(outer: int, inner: int) -> bool:
        if starts[inner] == ends[inner]:
            return starts[outer] <= starts[inner] < ends[outer]
        if (starts[outer], ends[outer]) == (starts[inner], ends[inner]):
            return outer < inner
        return starts[outer] <= starts[inner] and ends[inner] <= ends[outer]

    found = []
    for inner in rows:
        around = [outer for outer in rows if outer != inner and holds(outer, inner)]
        found.append(min(around, key=lambda row: (ends[row] - starts[row], -row), default=-1))
    return found


def is_kept(resolution: Resolution, start_ns: int, end_ns: int) -> bool:
    """Whether a window keeps what lies there, or at that moment."""
    if start_ns == end_ns:
        return any(first <= start_ns < stop for first, stop in resolution.exact_ns)
    return any(first < end_ns and start_ns < stop for first, stop in resolution.exact_ns)


def place_of(resolution: Resolution, start_ns: int) -> tuple[int, int]:
    """The bin in which something starts, and how many windows have ended by then."""
    ended = sum(stop <= start_ns for _, stop in resolution.exact_ns)
    return start_ns >> resolution.level, ended


def expected_elements(slices: Slices, resolution: Resolution) -> list[Element]:
    """Walk the siblings in order of time: short ones of one bin, without a longer between, join."""
    starts, ends = slices.start_ns.tolist(), slices.end_ns.tolist()
    inside: dict[int, list[int]] = {}
    above = parents(starts, ends) if slices.nested else [-1] * len(slices)
    for row in sorted(range(len(slices)), key=lambda row: (starts[row], row)):
        inside.setdefault(above[row], []).append(row)

    def is_short(row: int) -> bool:
        if resolution.exact or is_kept(resolution, starts[row], ends[row]):
            return False
        return bool(ends[row] - starts[row] < 1 << resolution.level)

    def below(row: int) -> Iterator[int]:
        yield row
        for child in inside.get(row, []):
            yield from below(child)

    def walk(parent: int, outer: Element | None) -> Iterator[Element]:
        run: list[int] = []
        for row in inside.get(parent, []):
            place = place_of(resolution, starts[row])
            if run and (not is_short(row) or place != place_of(resolution, starts[run[0]])):
                yield made(run, outer)
                run = []
            if is_short(row):
                run.append(row)
            else:
                drawn = made([row], outer, whole=False)
                yield drawn
                yield from walk(row, drawn)
        if run:
            yield made(run, outer)

    def made(run: list[int], outer: Element | None, *, whole: bool = True) -> Element:
        members = [row for head in run for row in below(head)] if whole else run
        length = {row: ends[row] - starts[row] for row in members}
        count, busy = Counter[str](), Counter[str]()
        for row in members:
            name = slices.strings[int(slices.name[row])]
            count[name] += 1
            busy[name] += length[row]
        alone = len(members) == 1
        return Element(
            min(starts[row] for row in members),
            max(ends[row] for row in members),
            members[0] if alone else MERGED,
            len(members),
            sum(length.values()),
            () if alone else tuple((name, count[name], busy[name]) for name in sorted(count)),
            outer,
        )

    return list(walk(-1, None))


def elements_of(coarse: Coarse, slices: Slices) -> list[Element]:
    """The elements that the code made, in their order."""
    names: dict[int, list[tuple[str, int, int]]] = {}
    for owner, code, count, busy in zip(
        coarse.owner.tolist(),
        coarse.name.tolist(),
        coarse.name_count.tolist(),
        coarse.name_busy_ns.tolist(),
        strict=True,
    ):
        names.setdefault(owner, []).append((slices.strings[code], count, busy))
    starts, ends = coarse.start_ns.tolist(), coarse.end_ns.tolist()
    above = parents(starts, ends) if slices.nested else [-1] * len(coarse)

    def element(row: int) -> Element:
        return Element(
            starts[row],
            ends[row],
            int(coarse.row[row]),
            int(coarse.count[row]),
            int(coarse.busy_ns[row]),
            tuple(sorted(names.get(row, []))),
            None if above[row] < 0 else element(above[row]),
        )

    return [element(row) for row in range(len(coarse))]


def thinned(samples: Samples, resolution: Resolution) -> list[tuple[int, float]]:
    """The first least and the first greatest sample of each bin, and all in windows, in order."""
    bins: dict[tuple[int, int, int], list[tuple[float, int]]] = {}
    for place, (time, value) in enumerate(
        zip(samples.time_ns.tolist(), samples.value.tolist(), strict=True)
    ):
        alone = resolution.exact or is_kept(resolution, time, time)
        key = (place, 0, 0) if alone else (-1, *place_of(resolution, time))
        bins.setdefault(key, []).append((value, place))
    kept = set()
    for one in bins.values():
        kept.add(min(one)[1])
        kept.add(min((-value, place) for value, place in one)[1])
    return [(int(samples.time_ns[place]), float(samples.value[place])) for place in sorted(kept)]
