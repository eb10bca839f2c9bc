"""Turns what the user asks for into one value: which ranks, graphs, steps, window and layers."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from decimal import Decimal

from timeline.errors import SelectionError, UsageError
from timeline.units import parse_duration_ns, spell_duration

__all__ = [
    "DETAIL_LAYERS",
    "SUMMARY_LAYERS",
    "Align",
    "Kind",
    "Layer",
    "Selection",
    "Window",
    "WindowEdge",
    "parse_layers",
    "parse_window",
]


class Kind(enum.Enum):
    """What is drawn: the overview, or every task."""

    SUMMARY = "summary"
    DETAIL = "detail"


class Align(enum.Enum):
    """What puts the ranks on one clock."""

    RECORDED = "recorded"
    """What the profiles tell of their clocks."""
    COLLECTIVES = "collectives"
    """That, corrected by the ends of collectives that ranks share."""
    START = "start"
    """The first device record of every rank."""
    NONE = "none"
    """Nothing: every rank is drawn at its own times."""


class Layer(enum.Enum):
    """A part of the picture that can be left out."""

    STEPS = "steps"
    OVERLAP = "overlap"
    HARDWARE = "hardware"
    COMMUNICATION = "communication"
    CANN = "cann"
    FRAMEWORK = "framework"
    SCOPES = "scopes"
    COUNTERS = "counters"
    ARROWS = "arrows"


SUMMARY_LAYERS = frozenset({Layer.STEPS, Layer.OVERLAP})
DETAIL_LAYERS = frozenset(Layer) - {Layer.SCOPES}


@dataclass(frozen=True)
class WindowEdge:
    """One edge of a window: nanoseconds after the first event, or a share of the whole span."""

    after_first_ns: int | None = None
    share: Decimal | None = None

    def at(self, first_ns: int, last_ns: int) -> int:
        """The edge on the clock of the trace, in ns, where events run from first to last."""
        if self.share is not None:
            return first_ns + int((last_ns - first_ns) * self.share)
        return first_ns + (self.after_first_ns or 0)


@dataclass(frozen=True)
class Window:
    """A half-open part of the time axis, counted from the first device record of the selection.

    A record is in the window when any part of it is; it is kept whole.
    """

    start: WindowEdge
    end: WindowEdge

    def bounds_ns(self, first_ns: int, last_ns: int) -> tuple[int, int]:
        """The window as [start, end) in ns on the clock of the trace.

        Raises:
            SelectionError: nothing of the selection lies between the edges.
        """
        start_ns, end_ns = self.start.at(first_ns, last_ns), self.end.at(first_ns, last_ns)
        if self.end.share == 1:
            end_ns = last_ns + 1
        if end_ns <= start_ns or start_ns > last_ns or end_ns <= first_ns:
            raise SelectionError(
                f"the window {spell_duration(start_ns - first_ns)} to "
                f"{spell_duration(end_ns - first_ns)} lies outside the selection, which runs from "
                f"0 ns to {spell_duration(last_ns - first_ns)}."
            )
        return start_ns, end_ns


@dataclass(frozen=True)
class Selection:
    """Which part of a profile is exported; None means all."""

    ranks: frozenset[int] | None = None
    graphs: frozenset[int] | None = None
    steps: frozenset[int] | None = None
    window: Window | None = None
    layers: frozenset[Layer] = field(default=SUMMARY_LAYERS)


def parse_window(text: str) -> Window:
    """Read "A:B", each edge empty, a time with a unit, or a percentage."""
    start_text, colon, end_text = text.partition(":")
    if not colon:
        raise UsageError(f"--window {text}: write START:END, as in 1.2s:1.5s or 30%:60%.")
    start = _parse_edge(start_text, WindowEdge(after_first_ns=0))
    end = _parse_edge(end_text, WindowEdge(share=Decimal(1)))
    return Window(start, end)


def _parse_edge(text: str, default: WindowEdge) -> WindowEdge:
    text = text.strip()
    if not text:
        return default
    if text.endswith("%"):
        try:
            share = Decimal(text[:-1]) / 100
        except ArithmeticError:
            raise UsageError(f"--window: {text!r} is no percentage.") from None
        if not 0 <= share <= 1:
            raise UsageError(f"--window: {text} lies outside 0% to 100%.")
        return WindowEdge(share=share)
    return WindowEdge(after_first_ns=parse_duration_ns(text))


def parse_layers(text: str) -> frozenset[Layer] | None:
    """Read a list of layer names; "all" is None, which leaves the choice to the kind."""
    if text.strip().lower() == "all":
        return None
    known = {layer.value: layer for layer in Layer}
    names = [name.strip().lower() for name in text.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"--layers: no layer {unknown[0]!r}; there are {', '.join(known)}.")
    return frozenset(known[name] for name in names)
