"""Turns pictures into files that keep the size limit, in one of four ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from timeline.encoders.formats import Format
from timeline.encoders.sink import Draft, publish_all, write_draft
from timeline.encoders.tally import Tally
from timeline.errors import LimitError
from timeline.options import Args, ExportOptions, Fit
from timeline.progress import Progress
from timeline.records.columns import Int64
from timeline.records.tables import Omission
from timeline.tracks.budget import Budget, bytes_by_layer
from timeline.tracks.fit import omissions_of, trimmings
from timeline.tracks.layers import LayerKey
from timeline.tracks.model import Arg, Samples, Slices, Timeline, Track
from timeline.tracks.picture import paint
from timeline.tracks.rank_picture import PictureOptions, RankPicture
from timeline.tracks.resolve import Plan, Resolved, resolve, without_half_arrows
from timeline.tracks.split import between, cut_moments
from timeline.units import spell_bytes

__all__ = ["Attributes", "Part", "Written", "fit"]

AIM = 0.93
"""Share of the limit that is aimed at: estimates err by a few percent."""
GOOD_ENOUGH = 0.8
"""A file this close to the limit is not worth another try."""
WORTH_A_TRY = 1.3
"""An exact file that is expected to be this much too large is tried all the same."""
NARROW = 3
"""Below this many times the coarsest file, it is written first, to know that there is one."""
COARSER = 3.0
FINER = 1.6
"""How far the next aim goes when all tries so far were on one side of the limit."""
MOST_TRIES = 4
"""The first writing, and three more at the most."""
LIMIT_REASON = "the size limit left no room for them"
ARROW_REASON = "arrows with an end that is gathered with others"
PART_REASON = "arrows from one part to another"

Attributes = Callable[
    [Sequence[Omission], Sequence[Resolved], Sequence[int]], tuple[tuple[str, str], ...]
]
"""Facts that travel in the file, given what is left out, gathered, and whose detail is in."""


@dataclass(frozen=True)
class Part:
    """One written file under a temporary name: its slices, and the bytes of each layer."""

    draft: Draft
    target: Path
    slices: int
    layer_bytes: Mapping[LayerKey, float]


@dataclass(frozen=True)
class Written:
    """All files of an export, not yet published, and what they cost."""

    parts: tuple[Part, ...]
    pictures: tuple[RankPicture, ...]
    kept_steps: tuple[int, ...]
    omissions: tuple[Omission, ...] = ()
    resolved: tuple[Resolved, ...] = ()
    exact_bytes: float = 0.0

    def publish(self) -> None:
        """Give all files their names; if one cannot have its own, none has."""
        publish_all([(part.draft, part.target) for part in self.parts])

    def discard(self) -> None:
        """Remove all files."""
        for part in self.parts:
            part.draft.discard()


def fit(
    pictures: tuple[RankPicture, ...],
    options: ExportOptions,
    picture_options: PictureOptions,
    target: Path,
    form: Format,
    attributes: Attributes,
    wall_offset_ns: int | None,
    progress: Progress,
) -> Written:
    """Write pictures so that no file exceeds the limit.

    Raises:
        LimitError: they do not fit and nothing may be left out, or the limit is too small for
            anything; then the message says which would do.
        OutputError: a file cannot be written.
    """
    writer = _Writer(options, picture_options, target, form, attributes, wall_offset_ns, progress)
    try:
        return _fit(writer, pictures)
    except BaseException:
        for draft in writer.drafts:
            draft.discard()
        raise


def _fit(writer: _Writer, pictures: tuple[RankPicture, ...]) -> Written:
    steps = steps_of(pictures)
    if not writer.limit:
        return writer.exact(pictures, steps)
    match writer.options.fit:
        case Fit.COARSEN:
            return _coarsened(writer, pictures, steps)
        case Fit.STEPS:
            return _trimmed(writer, pictures, steps)
        case Fit.SPLIT:
            return _split(writer, pictures, steps)
        case Fit.ERROR:
            return _exact_or_error(writer, pictures, steps)


def steps_of(pictures: Sequence[RankPicture]) -> tuple[int, ...]:
    """All steps of the selection, ascending."""
    return tuple(
        sorted({step for picture in pictures for step in picture.records.steps.iteration.tolist()})
    )


@dataclass(frozen=True)
class _Drawing:
    """Tracks that are ready to be encoded, and what painting them left out."""

    tracks: tuple[Track, ...]
    omissions: tuple[Omission, ...]


@dataclass(frozen=True)
class _Writer:
    """Paints pictures and writes tracks to drafts."""

    options: ExportOptions
    picture_options: PictureOptions
    target: Path
    form: Format
    attributes: Attributes
    wall_offset_ns: int | None
    progress: Progress
    drafts: list[Draft] = field(default_factory=list)
    """All that were written, so that none outlives a failure."""

    @property
    def limit(self) -> int:
        return self.options.limit_bytes

    def draw(self, pictures: Sequence[RankPicture]) -> _Drawing:
        """All tracks of the pictures, with the args that were asked for."""
        self.progress.report("Drawing", 0, 0)
        painted = paint(pictures, self.picture_options)
        tracks = tuple(
            replace(track, content=track.content.with_args(self._wanted))
            if isinstance(track.content, Slices)
            else track
            for track in painted.tracks
        )
        return _Drawing(tracks, (*painted.omissions, *omissions_of(pictures, LIMIT_REASON)))

    def _wanted(self, arg: Arg) -> bool:
        if self.options.args is Args.DEFAULT:
            return arg.default
        return self.options.args is Args.ALL

    def write(
        self,
        tracks: Sequence[Track],
        omissions: Sequence[Omission],
        resolved: Sequence[Resolved],
        steps: Sequence[int],
        first_ns: int | None = None,
    ) -> Part:
        """Encode tracks to a draft."""
        self.progress.report("Writing", 0, 0)
        made = self._timeline(tracks, self.attributes(omissions, resolved, steps), first_ns)
        tally = Tally()
        draft = write_draft(self.form.encode(made, tally), self.target)
        self.drafts.append(draft)
        tally.scale_to(draft.size_bytes)
        return Part(draft, self.target, made.slice_count, bytes_by_layer(tracks, tally.by_track))

    def measure(
        self,
        tracks: Sequence[Track],
        omissions: Sequence[Omission] = (),
        steps: Sequence[int] = (),
        first_ns: int | None = None,
    ) -> int:
        """The bytes that tracks take in a file, without writing it."""
        facts = self.attributes(omissions, (), steps)
        return self.form.size_of(self._timeline(tracks, facts, first_ns))

    def _timeline(
        self, tracks: Sequence[Track], attributes: tuple[tuple[str, str], ...], first_ns: int | None
    ) -> Timeline:
        first = first_moment_ns(tracks) if first_ns is None else first_ns
        return Timeline(tuple(tracks), first, self.wall_offset_ns, attributes)

    def exact(self, pictures: tuple[RankPicture, ...], steps: tuple[int, ...]) -> Written:
        """Write everything, whatever its size."""
        drawing = self.draw(pictures)
        part = self.write(drawing.tracks, drawing.omissions, (), steps)
        return Written(
            (part,), pictures, steps, drawing.omissions, exact_bytes=part.draft.size_bytes
        )


def first_moment_ns(tracks: Sequence[Track]) -> int:
    """The first moment of any slice or sample, 0 where there is none."""
    firsts = []
    for track in tracks:
        if isinstance(track.content, Slices) and len(track.content):
            firsts.append(int(track.content.start_ns.min()))
        elif isinstance(track.content, Samples) and len(track.content):
            firsts.append(int(track.content.time_ns[0]))
    return min(firsts, default=0)


def _too_small(limit: int, least: int) -> LimitError:
    return LimitError(
        f"the limit of {spell_bytes(limit)} cannot hold the summary of this selection; the "
        f"smallest that works is {least} bytes. Take fewer --ranks or --steps."
    )


def _exact_or_error(
    writer: _Writer, pictures: tuple[RankPicture, ...], steps: tuple[int, ...]
) -> Written:
    whole = writer.exact(pictures, steps)
    size = whole.parts[0].draft.size_bytes
    if size <= writer.limit:
        return whole
    whole.discard()
    raise LimitError(
        f"the selection needs {spell_bytes(size)} and the limit is {spell_bytes(writer.limit)}; "
        "take fewer --ranks or --steps, or leave out --fit error."
    )


def _coarsened(
    writer: _Writer, pictures: tuple[RankPicture, ...], steps: tuple[int, ...]
) -> Written:
    """Write at the finest resolutions that fit; each try tells what layers really cost."""
    drawing = writer.draw(pictures)
    budget = Budget(drawing.tracks, writer.measure)
    search = _Search(budget, writer.limit)
    tries = MOST_TRIES
    best: Written | None = None
    plan = budget.exact_plan()
    if plan.expected_bytes > writer.limit * WORTH_A_TRY:
        coarsest = budget.coarsest_plan()
        if coarsest.expected_bytes * NARROW > writer.limit:
            best = _coarsest(writer, drawing, budget, pictures, steps)
            search.add(coarsest, best.parts[0].draft.size_bytes)
            tries -= 1
        plan = budget.plan(writer.limit * AIM)
    for _ in range(tries):
        tried = _resolved(writer, drawing, plan, pictures, steps)
        part = tried.parts[0]
        size = part.draft.size_bytes
        if search.plain(plan):
            budget.learn(plan, part.layer_bytes)
        search.add(plan, size)
        if size <= writer.limit:
            best = _larger(best, tried)
            if plan.exact or size >= writer.limit * GOOD_ENOUGH:
                break
        else:
            tried.discard()
        plan = search.next_plan()
    if best is None:
        best = _coarsest_that_fits(writer, drawing, budget, pictures, steps)
    return replace(best, exact_bytes=search.exact_bytes)


class _Search:
    """Closes in on the plan whose file is just below the limit.

    Between a plan that fits and one that does not, the finer of both is taken for a leading share
    of the slices: the size is then nearly linear in the share.
    """

    def __init__(self, budget: Budget, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._target = limit * AIM
        self._fits: tuple[Plan, int] | None = None
        self._exceeds: tuple[Plan, int] | None = None
        self._shares: list[tuple[float, int]] = []
        self._last_share: float | None = None
        self._hits = 0
        self._misses = 0
        self._exact_bytes = 0.0

    @property
    def exact_bytes(self) -> float:
        """The size of the exact file, measured where it was tried."""
        return self._exact_bytes or self._budget.exact_plan().expected_bytes

    def plain(self, plan: Plan) -> bool:
        """Whether a plan is not a mix of two."""
        return all(own.finer_until_ns is None for own in plan.resolutions.values())

    def add(self, plan: Plan, size: int) -> None:
        """Note the size of a plan that was tried."""
        if plan.exact:
            self._exact_bytes = float(size)
        if self._last_share is not None:
            self._shares.append((self._last_share, size))
        elif size <= self._limit:
            self._hits += 1
            if self._fits is None or size > self._fits[1]:
                self._fits = (plan, size)
        else:
            self._misses += 1
            if self._exceeds is None or size < self._exceeds[1]:
                self._exceeds = (plan, size)

    def next_plan(self) -> Plan:
        """What to try next."""
        if self._fits is not None and self._exceeds is not None:
            return self._mixed(*self._fits, *self._exceeds)
        exact = self._budget.exact_plan()
        if self._fits is not None:
            if not self._exact_bytes and exact.expected_bytes <= self._limit * WORTH_A_TRY:
                return exact
            return self._budget.plan(self._target * FINER**self._hits)
        return self._budget.plan(self._target / COARSER ** (self._misses - 1))

    def _mixed(self, coarse: Plan, coarse_size: int, fine: Plan, fine_size: int) -> Plan:
        points = sorted([(0.0, coarse_size), *self._shares, (1.0, fine_size)])
        low = max(point for point in points if point[1] <= self._limit)
        high = min(point for point in points if point[0] > low[0])
        part = (self._target - low[1]) / max(1, high[1] - low[1])
        self._last_share = low[0] + (high[0] - low[0]) * min(max(part, 0.0), 1.0)
        return self._budget.mixed(fine, coarse, self._last_share)


def _coarsest_that_fits(
    writer: _Writer,
    drawing: _Drawing,
    budget: Budget,
    pictures: tuple[RankPicture, ...],
    steps: tuple[int, ...],
) -> Written:
    """Estimates failed: aim ever lower, in the end at the coarsest there is."""
    aim = writer.limit * AIM
    coarsest = budget.coarsest_plan()
    while (aim := aim / 2) > coarsest.expected_bytes:
        tried = _resolved(writer, drawing, budget.plan(aim), pictures, steps)
        if tried.parts[0].draft.size_bytes <= writer.limit:
            return tried
        tried.discard()
    return _coarsest(writer, drawing, budget, pictures, steps)


def _coarsest(
    writer: _Writer,
    drawing: _Drawing,
    budget: Budget,
    pictures: tuple[RankPicture, ...],
    steps: tuple[int, ...],
) -> Written:
    """The smallest file there is.

    Raises:
        LimitError: it is too large.
    """
    tried = _resolved(writer, drawing, budget.coarsest_plan(), pictures, steps)
    size = tried.parts[0].draft.size_bytes
    if size > writer.limit:
        tried.discard()
        exact = _resolved(writer, drawing, budget.exact_plan(), pictures, steps)
        exact.discard()
        raise _too_small(writer.limit, min(size, exact.parts[0].draft.size_bytes))
    return tried


def _resolved(
    writer: _Writer,
    drawing: _Drawing,
    plan: Plan,
    pictures: tuple[RankPicture, ...],
    steps: tuple[int, ...],
) -> Written:
    tracks, resolved, lost = resolve(drawing.tracks, plan)
    omissions = drawing.omissions
    if lost:
        omissions += (Omission(ARROW_REASON, lost),)
    shown = tuple(resolved) if not plan.exact else ()
    part = writer.write(tracks, omissions, shown, steps)
    return Written((part,), pictures, steps, omissions, shown)


def _larger(best: Written | None, tried: Written) -> Written:
    if best is None:
        return tried
    keep, drop = (
        (tried, best)
        if (tried.parts[0].draft.size_bytes >= best.parts[0].draft.size_bytes)
        else (best, tried)
    )
    drop.discard()
    return keep


def _trimmed(writer: _Writer, pictures: tuple[RankPicture, ...], steps: tuple[int, ...]) -> Written:
    """Write the detail of as many leading steps as fit, by what the tries before took."""
    whole = writer.exact(pictures, steps)
    size = whole.parts[0].draft.size_bytes
    if size <= writer.limit:
        return whole
    whole.discard()
    trimming = trimmings(pictures)
    records = np.concatenate([[0], np.cumsum(np.maximum(trimming.weights, 1))])
    points = [(0.0, 0.0), (float(records[-1]), float(size))]
    best: Written | None = None
    low, high = 0, trimming.pieces
    for _ in range(MOST_TRIES - 2):
        kept = _pieces_to_try(records, points, low, high, writer.limit * AIM)
        if kept is None:
            break
        tried = writer.exact(trimming.keep(pictures, kept), trimming.steps[:kept])
        size = tried.parts[0].draft.size_bytes
        points = sorted([*(point for point in points if point[0] > 0), (records[kept], size)])
        if size <= writer.limit:
            if best is not None:
                best.discard()
            best, low = tried, kept
        else:
            tried.discard()
            high = kept
    if best is None:
        best = writer.exact(trimming.keep(pictures, 0), ())
        least = best.parts[0].draft.size_bytes
        if least > writer.limit:
            best.discard()
            raise _too_small(writer.limit, min(least, int(whole.exact_bytes)))
    return replace(best, exact_bytes=whole.exact_bytes)


def _pieces_to_try(
    records: Int64, points: Sequence[tuple[float, float]], low: int, high: int, aim_bytes: float
) -> int | None:
    """How many pieces between `low`, which fits, and `high`, which does not, should just fit.

    Size grows with the number of records in proportion, from what the summary takes: two known
    points (records, bytes) tell both.
    """
    if high - low <= 1:
        return None
    (first, first_bytes), (second, second_bytes) = points[0], points[1]
    for_one = (second_bytes - first_bytes) / max(1.0, second - first)
    wanted = first + (aim_bytes - first_bytes) / max(for_one, 1e-9)
    kept = int(np.searchsorted(records, wanted, side="right")) - 1
    return min(max(kept, low + 1), high - 1)


def _split(writer: _Writer, pictures: tuple[RankPicture, ...], steps: tuple[int, ...]) -> Written:
    """Write parts in order of time, each within the limit, together everything."""
    drawing = writer.draw(pictures)
    whole = writer.write(drawing.tracks, drawing.omissions, (), steps)
    size = whole.draft.size_bytes
    if size <= writer.limit:
        return Written((whole,), pictures, steps, drawing.omissions, exact_bytes=size)
    whole.draft.discard()
    first_ns = first_moment_ns(drawing.tracks)
    count = int(size / (writer.limit * AIM)) + 1
    moments = cut_moments(drawing.tracks, count, first_ns, _last_moment_ns(drawing.tracks) + 1)
    parts: list[Part] = []
    lost = 0

    def write(start_ns: int, end_ns: int) -> int:
        nonlocal lost
        tracks, cut_arrows = without_half_arrows(between(drawing.tracks, start_ns, end_ns))
        part = writer.write(tracks, drawing.omissions, (), steps, first_ns)
        if part.draft.size_bytes <= writer.limit:
            parts.append(part)
            lost += cut_arrows
        else:
            part.draft.discard()
        return part.draft.size_bytes

    least = _cut_to_fit(drawing.tracks, moments, writer.limit, write)
    if least > writer.limit:
        raise _too_small_for_parts(writer, drawing, moments, least, steps)
    omissions = drawing.omissions
    if lost:
        omissions += (Omission(PART_REASON, lost // 2),)
    named = tuple(
        replace(part, target=_part_path(writer.target, writer.form, number, len(parts)))
        for number, part in enumerate(parts, 1)
    )
    return Written(named, pictures, steps, omissions, exact_bytes=size)


def _cut_to_fit(
    tracks: Sequence[Track], moments: Sequence[int], limit: int, size_of: Callable[[int, int], int]
) -> int:
    """Cut between the moments until every part fits, in order of time.

    Returns:
        The largest size of a part; above the limit for one that cannot be cut, and then no more
        parts are tried.
    """
    largest = 0
    for start, end in pairwise(moments):
        size = size_of(start, end)
        if size > limit:
            halves = cut_moments(tracks, 2, start, end)
            if len(halves) > 2:
                size = _cut_to_fit(tracks, halves, limit, size_of)
            if size > limit:
                return size
        largest = max(largest, size)
    return largest


def _too_small_for_parts(
    writer: _Writer,
    drawing: _Drawing,
    moments: Sequence[int],
    least: int,
    steps: Sequence[int],
) -> LimitError:
    """Look for a limit that would do, from the size of the part that could not be cut."""

    def size_of(start_ns: int, end_ns: int) -> int:
        tracks, _ = without_half_arrows(between(drawing.tracks, start_ns, end_ns))
        return writer.measure(tracks, drawing.omissions, steps, moments[0])

    while (needed := _cut_to_fit(drawing.tracks, moments, least, size_of)) > least:
        least = max(needed, least * 5 // 4)
    return LimitError(
        f"the limit of {spell_bytes(writer.limit)} cannot hold one moment of this selection in a "
        f"part; {least} bytes would do. Take fewer --ranks or --layers."
    )


def _last_moment_ns(tracks: Sequence[Track]) -> int:
    lasts = [0]
    for track in tracks:
        if isinstance(track.content, Slices) and len(track.content):
            lasts.append(int(track.content.end_ns.max()))
        elif isinstance(track.content, Samples) and len(track.content):
            lasts.append(int(track.content.time_ns[-1]))
    return max(lasts)


def _part_path(target: Path, form: Format, number: int, count: int) -> Path:
    """name.part01of07.pftrace for name.pftrace."""
    stem = target.name.removesuffix(form.suffix)
    width = max(2, len(str(count)))
    return target.with_name(f"{stem}.part{number:0{width}}of{count:0{width}}{form.suffix}")
