"""Turns pictures that are too large into pictures whose detail covers only the leading steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.cut import cut, cut_window, device_span_ns
from timeline.records.columns import Bool, Columns
from timeline.records.tables import NO_TIME, Omission, Records
from timeline.selection import Selection
from timeline.tracks.rank_picture import Missing, RankPicture

__all__ = ["Trimming", "omissions_of", "row_count", "trimmings"]

PIECES_WITHOUT_STEPS = 64
"""A profile without steps is trimmed by this many equal pieces of its time instead."""


@dataclass(frozen=True)
class Trimming:
    """One way to trim: the detail of the `kept` leading pieces of all ranks, in drawing order.

    weights[i] is the number of records in piece i, so the size of any number of leading pieces
    can be estimated before it is encoded.
    """

    steps: tuple[int, ...]
    edges_ns: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def pieces(self) -> int:
        """How many pieces there are."""
        return len(self.weights)

    def keep(self, pictures: Sequence[RankPicture], kept: int) -> tuple[RankPicture, ...]:
        """The pictures with detail in the leading `kept` pieces only."""
        return tuple(self._keep(picture, kept) for picture in pictures)

    def _keep(self, picture: RankPicture, kept: int) -> RankPicture:
        full = picture.records
        if self.steps:
            detail = cut(full, Selection(steps=frozenset(self.steps[:kept]))).records
            left_out = self.steps[kept:]
        else:
            part = cut_window(picture.cut, self.edges_ns[0], self.edges_ns[kept])
            detail = part.records if kept else _nothing(full)
            left_out = ()
        span = device_span_ns(full)
        if span is None or kept >= self.pieces:
            return replace(picture, detail=detail)
        start_ns = self._end_of_detail_ns(picture, detail, span, kept)
        missing = Missing(
            start_ns,
            span[1],
            tuple(left_out),
            len(full.tasks) - len(detail.tasks),
            len(full.planes) - len(detail.planes),
            len(full.host) - len(detail.host),
        )
        return replace(picture, detail=detail, missing=missing)

    def _end_of_detail_ns(
        self, picture: RankPicture, detail: Records, span: tuple[int, int], kept: int
    ) -> int:
        if not self.steps:
            return min(max(self.edges_ns[kept], span[0]), span[1])
        reach = [int(table.end_ns.max()) for table in (detail.tasks, detail.ops) if len(table)]
        return max(reach, default=span[0])


def _nothing(records: Records) -> Records:
    def none(table: Columns) -> Bool:
        return np.zeros(len(table), np.bool_)

    return records.kept(
        tasks=none(records.tasks),
        ops=none(records.ops),
        planes=none(records.planes),
        host=none(records.host),
        samples=none(records.samples),
    )


def row_count(records: Records) -> int:
    """Rows that detail draws."""
    return (
        len(records.tasks)
        + len(records.planes)
        + len(records.ops)
        + len(records.host)
        + len(records.samples)
    )


def trimmings(pictures: Sequence[RankPicture]) -> Trimming:
    """Pieces of the selection that all ranks share: its steps in order of time, else its time."""
    order = _steps_in_order(pictures)
    if order:
        weights = [0.0] * len(order)
        place = {step: at for at, step in enumerate(order)}
        for picture in pictures:
            _add_weights(weights, place, picture)
        return Trimming(tuple(order), (), tuple(int(weight) for weight in weights))
    spans = [span for picture in pictures if (span := device_span_ns(picture.records))]
    if not spans:
        return Trimming((), (), ())
    first, last = min(span[0] for span in spans), max(span[1] for span in spans)
    edges = np.linspace(first, last + 1, PIECES_WITHOUT_STEPS + 1).astype(np.int64)
    starts = np.concatenate([picture.records.tasks.start_ns for picture in pictures])
    weights_by_time = np.histogram(starts, edges)[0]
    return Trimming((), tuple(edges.tolist()), tuple(weights_by_time.tolist()))


def _steps_in_order(pictures: Sequence[RankPicture]) -> list[int]:
    first: dict[int, int] = {}
    for picture in pictures:
        steps = picture.records.steps
        held = picture.cut.membership.device_start_ns != NO_TIME
        for step, start in zip(
            steps.iteration[held].tolist(), steps.start_ns[held].tolist(), strict=True
        ):
            first[step] = min(start, first.get(step, start))
    return sorted(first, key=lambda step: (first[step], step))


def _add_weights(weights: list[float], place: dict[int, int], picture: RankPicture) -> None:
    """Records of each step; host events and samples are spread over the steps evenly."""
    membership, steps = picture.cut.membership, picture.records.steps
    for rows in (membership.tasks, membership.ops, membership.planes):
        for step, count in enumerate(np.bincount(rows[rows >= 0], minlength=len(steps)).tolist()):
            at = place.get(int(steps.iteration[step]))
            if at is not None:
                weights[at] += count
    rest = len(picture.records.host) + len(picture.records.samples)
    for at in place.values():
        weights[at] += rest / len(place)


def omissions_of(pictures: Sequence[RankPicture], reason: str) -> tuple[Omission, ...]:
    """What trimmed pictures leave out, by rank."""
    made = []
    for picture in pictures:
        missing = picture.missing
        if missing is not None:
            rows = row_count(picture.records) - row_count(picture.detail)
            made.append(Omission(reason, rows, picture.records.rank, missing.steps, loss=True))
    return tuple(made)
