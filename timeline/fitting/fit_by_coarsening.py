"""`--fit coarsen`: one file at the finest resolutions that keep the limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from timeline.analysis.telling_steps import StepRun
from timeline.encoders.compression import Compression
from timeline.encoders.piece_maker import PieceMaker
from timeline.encoders.piece_store import PieceStore
from timeline.encoders.pieces import Piece
from timeline.errors import LimitError
from timeline.fitting.drawn_layer import describe_resolutions
from timeline.fitting.exact_file import choose_compression, try_exact
from timeline.fitting.exact_runs import ASKED_SHARE, SHARE, ExactRuns, choose_exact_runs
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.paced_file import AIM, PacedFile
from timeline.fitting.plan import Plan, Planner
from timeline.fitting.writer import (
    Drawing,
    Kept,
    Picture,
    Writer,
    Written,
    first_moment_ns,
    too_small_error,
)
from timeline.frozen import dataclass
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.model import ARROW_REASON, element_count
from timeline.tracks.rank_tracks import DrawnRank
from timeline.units import spell_count, spell_number

__all__ = ["RedrawExact", "write_coarsened"]

MOST_TRIES = 4
"""Estimates of several layers may all be wrong at once; then what was written tells more."""
WORTH_ANOTHER = 0.9
"""A file that uses so much of the limit that binds is not worth another try."""

NO_ROOM_REASON = "arrows for which the limit leaves no room"
"""Why arrows are left out where no slice is merged: it was expected that some would be."""

RedrawExact = Callable[[ExactRuns], Sequence[DrawnRank] | None]
"""Draws ranks again that were merged before, with some steps exact; None where none was merged."""


def write_coarsened(
    writer: Writer, drawing: Drawing, runs: Iterable[StepRun], redraw: RedrawExact
) -> Written:
    """Write everything if it fits, else at the finest resolutions that do.

    Args:
        runs: steps that stay exact as long as a part of the limits holds them, in order.

    Raises:
        LimitError: all that can be merged is, and it does not fit.
    """
    with writer.maker(drawing.tracks, first_moment_ns(drawing.tracks)) as maker:
        whole, planner = try_exact(writer, drawing, maker)
        if whole is not None:
            return whole
        exact_share = writer.limits.share(planner.whole)
        exact = _choose_exact(writer, drawing, planner, runs)
        drawn = redraw(exact) if exact.runs else None
        again = drawing if drawn is None else writer.draw(drawn)
        planner.exact = exact
        return _Fitted(writer, again, planner, exact, maker, exact_share, drawing).write()


def _choose_exact(
    writer: Writer, drawing: Drawing, planner: Planner, runs: Iterable[StepRun]
) -> ExactRuns:
    asked = writer.options.exact_steps is not None
    return choose_exact_runs(
        runs,
        [facts.rank for facts in drawing.facts],
        drawing.tracks,
        planner.exact_cost,
        writer.limits * (ASKED_SHARE if asked else SHARE),
    )


@dataclass
class _Fitted:
    """Writes a file that is merged to keep its limits."""

    writer: Writer
    drawing: Drawing
    planner: Planner
    exact: ExactRuns
    maker: PieceMaker
    exact_share: float
    before: Drawing
    """As ranks were merged before any step was chosen: the smallest file has no exact ones."""
    least: Cost = Cost(math.inf, math.inf)
    """What the last file takes that was made and is too large."""

    def write(self) -> Written:
        """Write at the finest powers that fit; what was written tells what the next try may take.

        Raises:
            LimitError: all that can be merged is, and it does not fit.
        """
        limits, best = self.writer.limits, None
        before: Plan | None = None
        for _ in range(MOST_TRIES):
            plan = self.planner.plan(limits * AIM)
            if before is not None and plan.powers == before.powers:
                break
            before = plan
            written, is_good = self._write_plan(plan)
            if written is not None:
                best = self._larger(best, written)
            if is_good:
                break
        if best is not None:
            return best
        if self.exact.runs or before is None or before.powers != self.planner.coarsest().powers:
            return self._coarsest()
        raise self._too_small_error()

    def _larger(self, one: Written | None, other: Written) -> Written:
        """The file that uses more of the limits; the other is removed."""
        if one is None:
            return other
        less, more = sorted((one, other), key=lambda it: self.writer.limits.share(it.parts[0].cost))
        less.discard()
        return more

    def _coarsest(self) -> Written:
        """The smallest file there is.

        Raises:
            LimitError: it is too large.
        """
        self.exact = self.planner.exact = ExactRuns()
        self.drawing = self.before
        written, _ = self._write_plan(self.planner.coarsest())
        if written is None:
            raise self._too_small_error()
        return written

    def _too_small_error(self) -> LimitError:
        """What to say where the smallest file is too large; with nothing merged it may be less."""
        exact = self.writer.exact(self.drawing)
        exact.discard()
        least = min(self.least, exact.parts[0].cost, key=self.writer.limits.share)
        return too_small_error(self.writer.limits, least)

    def _write_plan(self, plan: Plan) -> tuple[Written | None, bool]:
        """Write by a plan: the file, None where it exceeds the limits; and whether it is good."""
        writer, limits = self.writer, self.writer.limits
        in_bytes = Limits(limits.size_bytes)
        compression = choose_compression(in_bytes, plan.expected, self.drawing.tracks)
        every = spell_count(element_count(self.drawing.tracks), "record")

        def tell(elements: int) -> None:
            writer.progress.report(f"Writing {spell_number(elements)} of {every}", 0, 0)

        writer.progress.report("Merging what is short", 0, 0)

        paced = PacedFile(
            self.drawing.tracks,
            plan,
            self.planner,
            self.exact,
            limits,
            self.maker,
            compression,
            tell,
        )
        with PieceStore() as store:
            ends = self._ends_of_file(paced, compression)
            paced.write(store, ends.cost)
            while not paced.holds((ends := self._ends_of_file(paced, compression)).cost):
                if not paced.shrink(store, ends.cost):
                    self.least = paced.cost
                    self._learn(paced, ends.cost)
                    return None, False
            is_good = limits.share(paced.cost) >= WORTH_ANOTHER
            if not is_good:
                self._learn(paced, ends.cost)
            part = writer.put_together(
                self.maker,
                chain([ends.opening], store.pieces(), [ends.closing]),
                ends.made,
                list(paced.tracks()),
                paced.cost,
            )
        written = Written((part,), self.drawing.facts, ends.kept, self.exact_share)
        return written, is_good

    def _ends_of_file(self, paced: PacedFile, compression: Compression) -> _Ends:
        """What comes first and last in the file as it is by now."""
        writer, layers = self.writer, paced.layers()
        omissions = self.drawing.omissions
        lost = self.drawing.arrows - paced.count_arrows()
        is_merged = any(layer.merged for layer in layers)
        is_limited = is_merged or lost > 0
        if lost:
            reason = ARROW_REASON if is_merged else NO_ROOM_REASON
            omissions += (Omission(reason, lost, code=OmissionCode.ARROW_CUT),)
        kept = Kept(
            self.drawing.steps,
            omissions,
            layers if is_limited else (),
            self.exact.runs if is_merged else (),
            writer.limits.binding(paced.cost) if is_limited else None,
        )
        rows = describe_resolutions(self.drawing.tracks, layers, self._exact_steps())
        made = writer.picture(rows, kept, self.maker.first_ns)
        opening = self.maker.opening(made.timeline, made.said, compression)
        closing = self.maker.closing(list(paced.tracks()), compression)
        packing = self.maker.packing
        ends_bytes = len(opening) + len(closing) + len(packing.before) + len(packing.after(()))
        return _Ends(kept, made, opening, closing, writer.limits.cost(ends_bytes, made.said))

    def _exact_steps(self) -> dict[int, list[int]]:
        """The steps that stay exact, by rank."""
        made: dict[int, list[int]] = {}
        for run in self.exact.runs:
            made.setdefault(self.drawing.facts[run.place].rank, []).append(run.step)
        return made

    def _learn(self, paced: PacedFile, base: Cost) -> None:
        """Correct what layers, and all that is not of a layer, are expected to take."""
        self.planner.base = base
        for layer, (found, expected) in paced.costs_by_layer().items():
            self.planner.ladders[layer].correct(found, expected)


@dataclass(frozen=True)
class _Ends:
    """What a file keeps, its picture, its first and last pieces, and what takes their place.

    cost: with what the file says of itself, and whatever stands around all pieces.
    """

    kept: Kept
    made: Picture
    opening: Piece
    closing: Piece
    cost: Cost
