"""Files that keep the size limit, in one of the four ways of `--fit`.

A drawing that does not fit is fitted once: a few units of each layer are measured, resolutions are
planned by importance, the layers are written, and their actual size corrects the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from timeline.analysis.ordinary_steps import StepRun
from timeline.encoders.formats import Format
from timeline.encoders.piece_maker import EncodingWorkers, PieceMaker
from timeline.encoders.pieces import (
    PART_ELEMENTS,
    Compression,
    Piece,
    PieceStore,
    TrackBatch,
    split_track,
)
from timeline.errors import LimitError
from timeline.fitting.drawn_layers import (
    DrawnLayer,
    WholeArrows,
    count_drawn,
    describe_resolutions,
)
from timeline.fitting.fit_without_merging import (
    Redraw,
    choose_compression,
    try_exact,
    write_parts,
    write_steps,
)
from timeline.fitting.limits import Cost, Limits
from timeline.fitting.plan import (
    ASKED_STEPS_SHARE,
    STEPS_SHARE,
    ExactSteps,
    Plan,
    Planner,
    choose_exact_steps,
)
from timeline.fitting.sizes import Unit, cut_units, measure_by
from timeline.fitting.writer import (
    Arrange,
    Describe,
    Drawing,
    Kept,
    Picture,
    Writer,
    Written,
    first_moment_ns,
    too_small_error,
)
from timeline.layers import SIZE_LAYERS, SizeLayer
from timeline.options import ExportOptions, Fit
from timeline.progress import Progress
from timeline.records.tables import Omission, OmissionCode
from timeline.tracks.assemble import assemble
from timeline.tracks.model import ARROW_REASON, Track, element_count
from timeline.tracks.rank_tracks import DrawnRank
from timeline.units import spell_count, spell_number

AIM = 0.97
"""The share of the limits that plans aim at."""
GOOD_SHARE = 0.9
"""A file that uses this share of the binding limit is not planned again."""
MOST_PLANS = 3
"""Most files that are made of one drawing, each planned with the sizes of the one before."""
LEAST_PART, REFINED_PARTS = 1 << 8, 24
"""Least number of merged slices in a part of the refined layer, and its parts if it is large."""
COARSER_BY = (0, 1, 2, 4)
"""Levels by which the refined layer is made coarser, one by one, until the limits are kept."""
NO_ROOM_REASON = "arrows for which the limit leaves no room"
"""Reason for leaving out arrows when no slice is merged, though merging was expected."""

RedrawExact = Callable[[ExactSteps], Sequence[DrawnRank] | None]
"""Draws ranks again that were merged before, with some steps exact; None if none was merged."""


def fit(
    ranks: Sequence[DrawnRank],
    redraw: Redraw,
    options: ExportOptions,
    target: Path,
    form: Format,
    describe: Describe,
    wall_offset_ns: int | None,
    progress: Progress,
    arrange: Arrange | None = None,
    workers: EncodingWorkers | None = None,
    telling: Iterable[StepRun] = (),
    redraw_exact: RedrawExact = lambda _: None,
) -> Written:
    """Write drawn ranks so that no file exceeds the limits; no file if nothing has a time.

    arrange: puts the rows of ranks into one timeline; by default grouped as the options say.
    workers: other processes with time to encode. telling: runs of steps, those to keep longest
    first. redraw_exact: draws ranks again that were merged before.

    Raises:
        LimitError: they do not fit and nothing may be left out, or the limit is too small for
            anything; the message then gives a sufficient one.
        OutputError: a file cannot be written.
    """
    if not any(rank.facts.profile.timed for rank in ranks):
        return Written((), tuple(rank.facts for rank in ranks), Kept())
    arrange = arrange or partial(assemble, by_layer=options.groups_by_layer, folds_ranks=form.folds)
    limits = Limits.of(options)
    writer = Writer(
        options, target, form, describe, wall_offset_ns, progress, arrange, limits, workers
    )
    try:
        drawing = writer.draw(ranks)
        if options.bounds_memory:
            writer = replace(writer, limits=limits.with_memory(drawing.tracks))
        if not limits:
            return writer.exact(drawing)
        match options.fit:
            case Fit.COARSEN:
                return _write_coarsened(writer, drawing, telling, redraw_exact)
            case Fit.STEPS:
                return write_steps(writer, drawing, telling, redraw)
            case Fit.SPLIT:
                return write_parts(writer, drawing)
            case Fit.ERROR:
                return _write_all_or_fail(writer, drawing)
    except BaseException:
        for draft in writer.drafts:
            draft.discard()
        raise


def _write_all_or_fail(writer: Writer, drawing: Drawing) -> Written:
    """Write everything, or nothing.

    Raises:
        LimitError: it does not fit.
    """
    whole = writer.exact(drawing)
    cost = whole.parts[0].cost
    if writer.limits.hold(cost):
        return whole
    whole.discard()
    limit, needed = writer.limits.spelled(cost)
    raise LimitError(
        f"the selection needs {needed} and the limit is {limit}.",
        do="Take fewer --ranks or --steps, or leave out --fit error.",
    )


def _write_coarsened(
    writer: Writer, drawing: Drawing, runs: Iterable[StepRun], redraw: RedrawExact
) -> Written:
    """Write everything if it fits, else at the finest resolutions that do.

    Args:
        runs: steps that stay exact as long as a part of the limits holds them, in order.

    Raises:
        LimitError: all that can be merged is, and it does not fit.
    """
    limits = writer.limits
    with writer.maker(drawing.tracks, first_moment_ns(drawing.tracks)) as maker:
        whole, planner = try_exact(writer, drawing, maker)
        if whole is not None:
            return whole
        asked = writer.options.exact_steps is not None
        exact = choose_exact_steps(
            runs,
            [facts.rank for facts in drawing.facts],
            drawing.tracks,
            planner.sizes,
            measure_by(maker, limits, Compression.BEST),
            limits * (ASKED_STEPS_SHARE if asked else STEPS_SHARE),
        )
        written, least = None, planner.whole
        if exact.runs and planner.sizes:
            planner.exact = exact
            drawn = redraw(exact)
            again = drawing if drawn is None else writer.draw(drawn)
            written = _write_planned(_CoarseFile(writer, again, planner, maker), planner, limits)
        if written is None and planner.sizes:
            planner.exact = ExactSteps()
            file = _CoarseFile(writer, drawing, planner, maker)
            written = _write_planned(file, planner, limits)
            if written is None:
                written, least = file.write(planner.coarsest())
    if written is not None:
        return written
    everything = writer.exact(drawing)
    everything.discard()
    raise too_small_error(limits, min(least, everything.parts[0].cost, key=limits.share))


def _write_planned(file: _CoarseFile, planner: Planner, limits: Limits) -> Written | None:
    """Write by plans until one uses the limits well; None if none keeps them."""
    best: Written | None = None
    before: Plan | None = None
    for _ in range(MOST_PLANS):
        plan = planner.plan(limits * AIM)
        if before is not None and (plan.levels, plan.part) == (before.levels, before.part):
            break
        before = plan
        written, cost = file.write(plan)
        if written is None:
            continue
        if best is None or limits.share(cost) > limits.share(best.parts[0].cost):
            best, written = written, best
        if written is not None:
            written.discard()
        if limits.share(best.parts[0].cost) >= GOOD_SHARE:
            break
    return best


@dataclass(frozen=True)
class _Part:
    """Units of a layer that are drawn at one level and are one piece of the file."""

    number: int
    units: tuple[Unit, ...]
    level: int
    batch: TrackBatch
    cost: Cost = Cost()

    @property
    def start_ns(self) -> int:
        """Return the start of its first slice or sample."""
        return min(unit.start_ns for unit in self.units)

    @property
    def tracks(self) -> list[Track]:
        """Return its tracks as they are drawn."""
        return [track for _, track in self.batch.tracks]


@dataclass(frozen=True)
class _Ends:
    """All of a file except its layers: its text, its picture, and its first and last pieces.

    cost: of these pieces, and of the frame around all pieces.
    """

    kept: Kept
    picture: Picture
    opening: Piece
    closing: Piece
    cost: Cost


class _CoarseFile:
    """A file with its layers merged as planned."""

    def __init__(
        self, writer: Writer, drawing: Drawing, planner: Planner, maker: PieceMaker
    ) -> None:
        self._writer, self._drawing, self._planner, self._maker = writer, drawing, planner, maker
        self._limits, self._exact = writer.limits, planner.exact
        self._units = cut_units(drawing.tracks)
        self._drawn: dict[int, tuple[int, list[Track]]] = {}
        """The level and the tracks of each unit by its number, with all arrows of exact slices."""
        self._parts: dict[SizeLayer, list[_Part]] = {}
        in_bytes = Limits(self._limits.size_bytes)
        self._compression = choose_compression(in_bytes, planner.whole, drawing.tracks)

    def write(self, plan: Plan) -> tuple[Written | None, Cost]:
        """Write by a plan, and correct the planner's expected costs by the actual ones.

        Returns:
            The file, None if it exceeds the limits; and its cost.
        """
        self._writer.progress.report("Merging what is short", 0, 0)
        self._draw(plan)
        with PieceStore() as store:
            self._encode_all(store)
            ends = self._ends()
            self._correct(plan, ends.cost)
            while not self._limits.hold(self._cost(ends)):
                if not self._give_way(plan, store, ends):
                    return None, self._cost(ends)
                ends = self._ends()
            part = self._writer.put_together(
                self._maker,
                chain([ends.opening], store.pieces(), [ends.closing]),
                ends.picture,
                list(self._tracks()),
                self._cost(ends),
            )
        share = self._limits.share(self._planner.whole)
        return Written((part,), self._drawing.facts, ends.kept, share), part.cost

    def _draw(self, plan: Plan) -> None:
        """Draw all units at the levels of a plan, and group them into parts."""
        levels = dict[int, int]()
        for layer, units in self._units.items():
            levels |= {unit.number: plan.levels[layer] for unit in units}
        levels |= self._finer_levels(plan)
        every = [unit for units in self._units.values() for unit in units]
        changed = [
            one for one in every if self._drawn.get(one.number, (-1,))[0] != levels[one.number]
        ]
        drawn = self._maker.map(lambda unit: self._draw_unit(unit, levels[unit.number]), changed)
        for unit, tracks in zip(changed, drawn, strict=True):
            self._drawn[unit.number] = levels[unit.number], tracks
        self._arrows = WholeArrows(track for _, tracks in self._drawn.values() for track in tracks)
        self._parts = {
            layer: [self._part(group) for group in self._group(units, layer == plan.refined)]
            for layer, units in self._units.items()
        }

    def _finer_levels(self, plan: Plan) -> dict[int, int]:
        """Return the levels of the units of the refined layer that are finer: the first in time."""
        units = _in_time(self._units[plan.refined])
        until = plan.part * sum(element_count(unit.tracks) for unit in units)
        levels, before = {}, 0
        for unit in units:
            before += element_count(unit.tracks)
            if before > until:
                break
            levels[unit.number] = plan.finer_level
        return levels

    def _draw_unit(self, unit: Unit, level: int) -> list[Track]:
        return unit.drawn(level, self._exact.windows_ns)

    def _group(self, units: Sequence[Unit], is_refined: bool) -> Iterator[list[Unit]]:
        """Group units that are drawn alike, to be encoded together as they are small when merged.

        Those of the refined layer are in order of time, and few enough for each to be coarsened
        alone.
        """
        least = PART_ELEMENTS
        if is_refined:
            units = _in_time(units)
            drawn = sum(element_count(self._drawn[unit.number][1]) for unit in units)
            least = max(LEAST_PART, drawn // REFINED_PARTS)
        group: list[Unit] = []
        elements = 0
        for unit in units:
            level, tracks = self._drawn[unit.number]
            if group and (elements >= least or self._drawn[group[-1].number][0] != level):
                yield group
                group, elements = [], 0
            group.append(unit)
            elements += element_count(tracks)
        if group:
            yield group

    def _part(self, units: Sequence[Unit]) -> _Part:
        """Put units into one part, with the arrows that have both ends."""
        rows = list[tuple[int, Track]]()
        for unit in units:
            parts = (
                part
                for track in self._drawn[unit.number][1]
                for part in split_track(self._arrows.of(track))
            )
            rows += enumerate(parts, unit.sequence)
        batch = TrackBatch(rows, self._maker.first_ns)
        return _Part(
            min(one.number for one in units), tuple(units), self._drawn[units[0].number][0], batch
        )

    def _encode_all(self, store: PieceStore) -> None:
        parts = [part for own in self._parts.values() for part in own]
        every = spell_count(element_count(self._drawing.tracks), "record")
        pieces = self._maker.make_all((part.batch for part in parts), self._compression)
        costs, done = dict[int, Cost](), 0
        for part, (piece, _) in zip(parts, pieces, strict=True):
            store.put(part.number, piece)
            costs[part.number] = self._limits.cost(len(piece), part.tracks)
            done += sum(element_count(unit.tracks) for unit in part.units)
            self._writer.progress.report(f"Writing {spell_number(done)} of {every}", 0, 0)
        self._parts = {
            layer: [replace(part, cost=costs[part.number]) for part in own]
            for layer, own in self._parts.items()
        }

    def _give_way(self, plan: Plan, store: PieceStore, ends: _Ends) -> bool:
        """Draw parts coarser until the limits are kept: first the refined layer, from its end.

        Then the other layers, the least important first.

        Returns:
            True if they are kept, assuming that the ends of the file stay as they are.
        """
        others = [layer for layer in reversed([*self._planner.sizes]) if layer != plan.refined]
        for layer in (plan.refined, *others):
            levels, parts = self._planner.sizes[layer].levels, self._parts[layer]
            for more in COARSER_BY:
                level = levels[min(levels.index(plan.levels[layer]) + more, len(levels) - 1)]
                for at in reversed(range(len(parts))):
                    if self._limits.hold(self._cost(ends)):
                        return True
                    if parts[at].level < level:
                        parts[at] = self._draw_again(parts[at], level, store)
        return self._limits.hold(self._cost(ends))

    def _draw_again(self, part: _Part, level: int, store: PieceStore) -> _Part:
        for unit in part.units:
            self._drawn[unit.number] = level, self._draw_unit(unit, level)
        again = self._part(part.units)
        piece = self._maker.make(again.batch, self._compression)
        store.put(again.number, piece)
        return replace(again, cost=self._limits.cost(len(piece), again.tracks))

    def _parts_cost(self) -> Cost:
        return sum((part.cost for own in self._parts.values() for part in own), Cost())

    def _cost(self, ends: _Ends) -> Cost:
        return self._parts_cost() + ends.cost

    def _correct(self, plan: Plan, base: Cost) -> None:
        """Correct the planner's expected cost of each layer, and of the rest of the file."""
        self._planner.base = base
        for layer, own in self._parts.items():
            cost = sum((part.cost for part in own), Cost())
            self._planner.sizes[layer].correction *= cost.ratio(plan.costs[layer])

    def _tracks(self) -> Iterator[Track]:
        """Yield all tracks with slices or samples, in parts, as they are drawn."""
        return (track for own in self._parts.values() for part in own for track in part.tracks)

    def _ends(self) -> _Ends:
        """Encode the first and last pieces of the file in its current state."""
        writer, layers = self._writer, tuple(self._drawn_layers())
        tracks, omissions = list(self._tracks()), self._drawing.omissions
        lost = self._drawing.arrows - WholeArrows(tracks).count
        is_merged = any(layer.merged for layer in layers)
        is_limited = is_merged or lost > 0
        if lost:
            reason = ARROW_REASON if is_merged else NO_ROOM_REASON
            omissions += (Omission(reason, lost, code=OmissionCode.ARROW_CUT),)
        kept = Kept(
            self._drawing.steps,
            omissions,
            layers if is_limited else (),
            self._exact.runs if is_merged else (),
            self._limits.binding(self._parts_cost() + self._planner.base) if is_limited else None,
        )
        rows = describe_resolutions(self._drawing.tracks, layers, self._exact_steps())
        picture = writer.picture(rows, kept, self._maker.first_ns)
        opening = self._maker.opening(picture.timeline, picture.said, self._compression)
        closing = self._maker.closing(tracks, self._compression)
        packing = self._maker.packing
        ends_bytes = len(opening) + len(closing) + len(packing.before) + len(packing.after(()))
        return _Ends(kept, picture, opening, closing, self._limits.cost(ends_bytes, picture.said))

    def _drawn_layers(self) -> Iterator[DrawnLayer]:
        """Yield each layer as it is drawn, the most important first."""
        for layer in SIZE_LAYERS:
            if parts := self._parts.get(layer):
                drawn = count_drawn(track for part in parts for track in part.tracks)
                coarsest = max(part.level for part in parts)
                until_ns = min(part.start_ns for part in parts if part.level == coarsest)
                before = [part.level for part in parts if part.start_ns < until_ns]
                if not drawn.merged:
                    yield DrawnLayer(layer, self._planner.sizes[layer].floor, drawn)
                elif before:
                    yield DrawnLayer(layer, coarsest, drawn, max(before), until_ns)
                else:
                    yield DrawnLayer(layer, coarsest, drawn)

    def _exact_steps(self) -> dict[int, list[int]]:
        """Return the exact steps, by rank."""
        steps: dict[int, list[int]] = {}
        for run in self._exact.runs:
            steps.setdefault(self._drawing.facts[run.place].rank, []).append(run.step)
        return steps


def _in_time(units: Iterable[Unit]) -> list[Unit]:
    return sorted(units, key=lambda unit: (unit.start_ns, unit.number))
