"""The runs of steps that stay exact: as many as a part of the limits holds, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np

from timeline.analysis.telling_steps import StepRun
from timeline.columns.columns import Int64, ascending
from timeline.fitting.limits import Cost, Limits
from timeline.frozen import dataclass
from timeline.layers import SizeLayer
from timeline.tracks.model import Samples, Slices, Track

__all__ = ["ASKED_SHARE", "SHARE", "ExactRuns", "choose_exact_runs"]

SHARE = 1 / 4
"""What exact steps may take of the limits, as far as estimates go."""
ASKED_SHARE = 3 / 4
"""The same of steps that were asked for."""


@dataclass(frozen=True)
class ExactRuns:
    """Runs of steps that stay exact, in the order in which they were chosen.

    windows_ns: by rank, disjoint [start, end) in order of time, in which nothing is merged.
    shares: by layer, the share of its elements that lies in them. each: by layer, how many of its
    elements one window holds, on average.
    """

    runs: tuple[StepRun, ...] = ()
    windows_ns: Mapping[int, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    shares: Mapping[SizeLayer, float] = field(default_factory=dict)
    each: Mapping[SizeLayer, float] = field(default_factory=dict)

    def of(self, rank: int | None) -> tuple[tuple[int, int], ...]:
        """The windows of a rank; rows of all ranks have none."""
        return () if rank is None else self.windows_ns.get(rank, ())

    def count(self, track: Track) -> int:
        """How many slices or samples of a track begin in the windows of its rank."""
        windows_ns, content = self.of(track.rank), track.content
        if not windows_ns or content is None:
            return 0
        edges_ns = np.array(windows_ns, np.int64).ravel()
        if isinstance(content, Slices) and content.nested:  # in any order
            within = np.searchsorted(edges_ns, content.start_ns, side="right") & 1
            return int(np.count_nonzero(within))
        starts_ns = content.start_ns if isinstance(content, Slices) else content.time_ns
        before = np.searchsorted(starts_ns, edges_ns)
        return int((before[1::2] - before[::2]).sum())


def choose_exact_runs(
    runs: Iterable[StepRun],
    ranks: Sequence[int],
    tracks: Sequence[Track],
    exact_cost: Callable[[SizeLayer, int], Cost],
    limits: Limits,
) -> ExactRuns:
    """Choose runs until the next one would exceed the limits.

    Args:
        ranks: the rank at each place.
        exact_cost: what so many elements of a layer take that follow each other.
        limits: those of the runs alone.
    """
    moments = _Moments(tracks)
    chosen, total = list[StepRun](), Cost()
    within = dict.fromkeys(moments.elements, 0)
    for run in runs:
        counts = moments.count(ranks[run.place], run.start_ns, run.end_ns)
        cost = Cost()
        for layer, count in counts.items():
            cost += exact_cost(layer, count)
        if not limits.hold(total + cost):
            break
        total += cost
        chosen.append(run)
        for layer, count in counts.items():
            within[layer] += count
    windows: dict[int, list[tuple[int, int]]] = {}
    for run in chosen:
        windows.setdefault(ranks[run.place], []).append((run.start_ns, run.end_ns))
    windows_ns = {rank: _joined(found) for rank, found in windows.items()}
    number = sum(map(len, windows_ns.values()))
    return ExactRuns(
        tuple(chosen),
        windows_ns,
        {
            layer: min(1.0, count / max(1, moments.elements[layer]))
            for layer, count in within.items()
        },
        {layer: count / max(1, number) for layer, count in within.items()},
    )


def _joined(windows: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Windows that neither overlap nor touch, in order of time."""
    made: list[tuple[int, int]] = []
    for start_ns, end_ns in sorted(windows):
        if made and start_ns <= made[-1][1]:
            made[-1] = made[-1][0], max(made[-1][1], end_ns)
        else:
            made.append((start_ns, end_ns))
    return tuple(made)


class _Moments:
    """When slices and samples begin, by rank and layer; sorted for a rank when it is asked of."""

    def __init__(self, tracks: Sequence[Track]) -> None:
        self._tracks: dict[int, list[Track]] = {}
        self._sorted: dict[int, dict[SizeLayer, Int64]] = {}
        self.elements: dict[SizeLayer, int] = {}
        for track in tracks:
            if track.size_layer is not None:
                count = len(track.content or ())
                self.elements[track.size_layer] = self.elements.get(track.size_layer, 0) + count
                if track.rank is not None:
                    self._tracks.setdefault(track.rank, []).append(track)

    def count(self, rank: int, start_ns: int, end_ns: int) -> dict[SizeLayer, int]:
        """How many slices and samples of each layer of a rank begin in a window."""
        if rank not in self._sorted:
            self._sorted[rank] = self._sort(rank)
        return {
            layer: int(np.searchsorted(moments, end_ns) - np.searchsorted(moments, start_ns))
            for layer, moments in self._sorted[rank].items()
        }

    def _sort(self, rank: int) -> dict[SizeLayer, Int64]:
        by_layer: dict[SizeLayer, list[Int64]] = {}
        for track in self._tracks.get(rank, []):
            content = track.content
            if isinstance(content, Slices):
                by_layer.setdefault(content.kind.value, []).append(content.start_ns)
            elif isinstance(content, Samples) and track.size_layer is not None:
                by_layer.setdefault(track.size_layer, []).append(content.time_ns)
        return {layer: ascending(np.concatenate(found)) for layer, found in by_layer.items()}
