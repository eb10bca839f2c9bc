"""Selections of a part of a profile: ranks, graphs, steps, a window of time, and layers."""

from __future__ import annotations

import enum
import operator
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from timeline.declarations import (
    NO_COMPLETION,
    Completion,
    Group,
    InCompare,
    option,
    options_in,
)
from timeline.errors import SelectionError, UsageError, did_you_mean, format_ids
from timeline.layers import LAYERS, Layer, LayerName
from timeline.ranges import FURTHEST_NS, check_id
from timeline.units import check_range, format_duration, parse_duration_ns, parse_ids

if TYPE_CHECKING:
    from decimal import Decimal
    from pathlib import Path


class Kind(enum.Enum):
    """The kind of timeline: a summary, or every task."""

    SUMMARY = "summary"
    DETAIL = "detail"


class Align(enum.Enum):
    """The method that puts the ranks on one clock."""

    RECORDED = "recorded"
    """The clocks that the profiles record."""
    COLLECTIVES = "collectives"
    """The recorded clocks, corrected by the ends of collectives that ranks share."""
    START = "start"
    """The first device record of every rank is at the same time."""
    NONE = "none"
    """No common clock: every rank is drawn at its own times."""


SUMMARY_LAYERS = frozenset(spec.option for spec in LAYERS if spec.option and spec.in_summary)
DETAIL_LAYERS = frozenset(Layer) - {spec.option for spec in LAYERS if not spec.in_detail}


class WindowEdge(NamedTuple):
    """One edge of a window: nanoseconds after the first event, or a share of the whole span."""

    after_first_ns: int | None = None
    share: Decimal | None = None

    def at(self, first_ns: int, last_ns: int) -> int:
        """Return the edge in ns on the clock of the trace, given the first and last time."""
        if self.share is not None:
            return first_ns + int((last_ns - first_ns) * self.share)
        return first_ns + (self.after_first_ns or 0)


class Window(NamedTuple):
    """A half-open part of the time axis, counted from the first device record of the selection.

    A record is in the window if any part of it is; it is kept whole.
    """

    start: WindowEdge
    end: WindowEdge

    def bounds_ns(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """Return the window as [start, end) in ns on the clock of the trace.

        Raises:
            SelectionError: the window does not overlap the selection.
        """
        start_ns, end_ns = self.start.at(first_ns, last_ns), self.end.at(first_ns, last_ns)
        # Clip an edge beyond all possible times.
        start_ns, end_ns = max(start_ns, -FURTHEST_NS), min(end_ns, FURTHEST_NS)
        if self.end.share == 1:
            end_ns = last_ns + 1
        if end_ns <= start_ns or start_ns > last_ns or end_ns <= first_ns:
            raise SelectionError(
                f"the window {format_duration(start_ns - first_ns)} to "
                f"{format_duration(end_ns - first_ns)} lies outside of what there is, "
                f"from 0 ns to {format_duration(last_ns - first_ns)}.",
                do="Choose a --window inside that.",
            )
        return start_ns, end_ns


Ids: TypeAlias = Iterable[int] | int | str | None
"""Ids as users pass them: numbers, a string such as "0,2-5", None or "all" for all."""


_LISTED_BY = {
    "rank": "Profile.ranks lists them.",
    "graph": "Profile.steps() lists them.",
    "step": "Profile.steps() lists them.",
}
"""Advice in errors for users of the library, by kind of id: where to list the existing ids."""


def check_known(
    noun: str,
    wanted: frozenset[int],
    known: Iterable[int],
    path: Path,
    do: str = "Use --list to see them.",
) -> None:
    """Check that all wanted ids exist.

    noun: what the ids number, such as "rank". known: the ids that exist. do: advice of the command.

    Raises:
        SelectionError: a wanted id does not exist.
    """
    existing = set(known)
    absent = wanted - existing
    if absent:
        if not existing:
            raise SelectionError(f"this profile has no {noun}s; drop --{noun}s.")
        are = "is" if len(absent) == 1 else "are"
        plural = noun if len(absent) == 1 else f"{noun}s"
        listed = format_ids(existing)
        near = format_ids(sorted(existing, key=lambda one: abs(one - min(absent)))[:2])
        raise SelectionError(
            f"{plural} {format_ids(absent)} {are} not in {path}: found {noun}s {listed}"
            + (f"; the nearest are {near}." if "..." in listed else "."),
            do=do,
            python_do=_LISTED_BY[noun],
        )


def why_unread(rank: int, on_disk: Collection[int]) -> str:
    """Return the reason why a rank was not read: "not selected" or "not profiled".

    on_disk: all ranks of the profile, selected or not.
    """
    return "not selected" if rank in on_disk else "not profiled"


def _read_ids(name: str, ids: Ids) -> frozenset[int] | None:
    if ids is None:
        return None
    if isinstance(ids, str):
        parsed = parse_ids(ids, name)
        return None if parsed is None else _within_range(name, parsed)
    check_range(name, ids)
    try:
        each = ids if isinstance(ids, Iterable) else (ids,)
        # Turn NumPy integers into Python ints, which can be formatted and sorted.
        chosen = frozenset(operator.index(one) for one in each)
    except TypeError as error:
        raise UsageError(f"{name} {ids!r}: an id is a whole number ({error}).") from None
    return _within_range(name, chosen)


def _within_range(name: str, ids: frozenset[int]) -> frozenset[int]:
    for one in (min(ids), max(ids)) if ids else ():
        check_id(name, one)
    return ids


def _read_window(window: Window | str | None) -> Window | None:
    """Parse "A:B", where each edge is empty, a time with a unit, or a percentage."""
    if window is None or isinstance(window, Window):
        return window
    if not isinstance(window, str):
        raise UsageError(
            f"window {window!r}: it is not a window.",
            do="Write START:END, as in 1.2s:1.5s or 30%:60%.",
        )
    from decimal import Decimal

    start_text, colon, end_text = window.partition(":")
    if not colon:
        raise UsageError(
            f"window {window}: it has no colon.",
            do="Write START:END, as in 1.2s:1.5s or 30%:60%.",
        )
    start = _parse_edge(start_text, WindowEdge(after_first_ns=0))
    end = _parse_edge(end_text, WindowEdge(share=Decimal(1)))
    for one, other in ((start.after_first_ns, end.after_first_ns), (start.share, end.share)):
        if one is not None and other is not None and one >= other:
            raise UsageError(
                f"window {window}: it starts at or after its end.",
                do="Write START:END, as in 1.2s:1.5s or 30%:60%.",
            )
    return Window(start, end)


def _parse_edge(text: str, default: WindowEdge) -> WindowEdge:
    text = text.strip()
    if not text:
        return default
    from decimal import Decimal

    if text.endswith("%"):
        try:
            share = Decimal(text[:-1]) / 100
            inside = 0 <= share <= 1
        except ArithmeticError:
            raise UsageError(
                f"window: {text!r} is not a percentage.", do="Write a number, as in 30%:60%."
            ) from None
        if not inside:
            raise UsageError(
                f"window: {text} lies outside 0% to 100%.", do="Write it as in 30%:60%."
            )
        return WindowEdge(share=share)
    return WindowEdge(after_first_ns=parse_duration_ns(text))


def _read_layers(layers: Iterable[Layer | str] | str | None) -> frozenset[Layer] | None:
    """Return the layers of a list of names; "all" is None, which leaves the choice to the kind."""
    if layers is None:
        return None
    if isinstance(layers, str):
        if layers.strip().lower() == "all":
            return None
        layers = layers.split(",")
    by_name = {layer.value: layer for layer in Layer}
    chosen = set()
    for one in layers:
        name = one.value if isinstance(one, Layer) else str(one).strip().lower()
        if name not in by_name:
            raise UsageError(
                f"layers: there is no layer {name!r}{did_you_mean(name, by_name)}",
                do=f"Use some of {', '.join(by_name)}.",
            )
        chosen.add(by_name[name])
    return frozenset(chosen)


_ALL = Completion({"all": "all"})
_LAYERS = tuple(layer.value for layer in Layer)


@dataclass(frozen=True, init=False)
class Selection:
    """A part of a profile; None means all, and for layers those of the kind.

    Values may have several types, as in `Selection(ranks=[0, 1], steps=range(10, 20))` or
    `Selection(graphs="1,3-5", window="30%:60%")`; attributes are frozen sets.
    """

    ranks: frozenset[int] | None = option(
        "--ranks",
        group=Group.SELECT,
        often=True,
        help="ranks (default: all)",
        metavar="IDS",
        default="all",
        read=partial(_read_ids, "ranks"),
        completion=_ALL,
        compare=InCompare("ranks (default: all); of one run BASE:NEW, as in 5:4 or 0-3:4-7"),
    )
    graphs: frozenset[int] | None = option(
        "--graphs",
        group=Group.SELECT,
        help="graph (model) ids (default: all)",
        metavar="IDS",
        default="all",
        read=partial(_read_ids, "graphs"),
        completion=_ALL,
    )
    steps: frozenset[int] | None = option(
        "--steps",
        group=Group.SELECT,
        often=True,
        help="steps or iterations (default: all)",
        metavar="IDS",
        default="all",
        read=partial(_read_ids, "steps"),
        completion=_ALL,
        compare=InCompare("steps (default: all); of one run BASE:NEW, as in 7:3 or 3-6:7"),
    )
    window: Window | None = option(
        "--window",
        group=Group.SELECT,
        help="part of the time, counted from the first device record: ns, units or "
        "percent, as in 1.2s:1.5s or 30%%:60%%; START is in, END is not",
        metavar="START:END",
        read=_read_window,
        completion=NO_COMPLETION,
    )
    layers: frozenset[Layer] | None = option(
        "--layers",
        group=Group.SELECT,
        help=f"layers to draw: {', '.join(_LAYERS)} (default: those of the kind)",
        metavar="NAMES",
        default="all",
        read=_read_layers,
        completion=Completion(dict.fromkeys(_LAYERS, ""), separated=True),
    )

    def __init__(
        self,
        *,
        ranks: Ids = None,
        graphs: Ids = None,
        steps: Ids = None,
        window: Window | str | None = None,
        layers: Iterable[Layer | LayerName] | str | None = None,
    ) -> None:
        """Select a part of a profile.

        Args:
            ranks, graphs, steps: one id, several, or a string such as "0,2-5", whose ranges include
                both ends.
            window: part of the time as START:END, counted from the first device record: ns, units
                or percent, as in "1.2s:1.5s" or "30%:60%"; START is included, END is not.
            layers: layers to draw, as members, names, or a string such as "steps,overlap".

        Raises:
            UsageError: a value is invalid.
        """
        values = {
            "ranks": ranks,
            "graphs": graphs,
            "steps": steps,
            "window": window,
            "layers": layers,
        }
        for one in options_in(Selection):
            object.__setattr__(self, one.keyword, one.read(values[one.keyword]))

    def layers_of(self, kind: Kind) -> frozenset[Layer]:
        """Return the layers to draw: the selected ones, else those of the kind."""
        if self.layers is not None:
            return self.layers
        return SUMMARY_LAYERS if kind is Kind.SUMMARY else DETAIL_LAYERS


def select(selection: Selection | None, keywords: Mapping[str, Any]) -> Selection:
    """Return the selection, passed as a Selection or as keywords; by default everything.

    keywords: may contain others than those of a Selection.

    Raises:
        TypeError: both are passed, or `selection` is not a Selection.
        UsageError: a value is invalid.
    """
    names = [one.keyword for one in options_in(Selection) if one.keyword in keywords]
    if selection is None:
        return Selection(**{name: keywords[name] for name in names})
    if not isinstance(cast(object, selection), Selection):
        raise TypeError(
            f"a selection is a Selection, not {selection!r}: write ranks=..., steps=... instead"
        )
    if names:
        raise TypeError(
            f"a Selection and {', '.join(names)} are both given: write all of it as one or the "
            "other"
        )
    return selection
