"""Colours of what pictures show, on paper and on screen, light and dark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from timeline.figures.table import Table

LEAST_SEEN = 1e-3
"""A smaller share of a picture is less than a pixel."""

LIGHT = {
    "paper": "#ffffff",
    "panel": "#f5f7fa",
    "ink": "#17202c",
    "muted": "#525e6d",
    "rule": "#d8dee6",
    "accent": "#0b57a4",
    "computing": "#0f5ea8",
    "on-computing": "#fefefe",
    "overlapped": "#8cc3f0",
    "on-overlapped": "#0d1b2a",
    "exposed": "#b8430a",
    "on-exposed": "#fefffe",
    "exposed-hatch": "#8f3407",
    "waiting": "#b3400b",
    "on-waiting": "#fffefe",
    "transfer": "#f2b57f",
    "on-transfer": "#22140a",
    "unsplit": "#d7813f",
    "on-unsplit": "#180d05",
    "unsplit-hatch": "#f6cfae",
    "copies": "#0e7c6b",
    "on-copies": "#fdfefe",
    "idle": "#cfd5dd",
    "on-idle": "#1a2430",
    "between": "#eef1f6",
    "on-between": "#1a2431",
    "between-hatch": "#b9c1cc",
    "band": "#dce6f2",
    "step": "#16202d",
    "fp-bp": "#0f5fa9",
    "tail": "#b8440b",
    "interval": "#7a3ea1",
    "warning": "#8a4b00",
    "before": "#5f6b7b",
    "now": "#0b57a5",
    "worse": "#b3261e",
    "better": "#1a7a3c",
    "operator": "#0f5da7",
    "under-operator": "#dbe6f1",
}
"""No two roles share a colour: a drawing is turned to dark by its colours."""

DARK = {
    "paper": "#11161d",
    "panel": "#1a212b",
    "ink": "#e7ecf2",
    "muted": "#a6b1bf",
    "rule": "#323c49",
    "accent": "#7fbcf7",
    "computing": "#5aaaf2",
    "on-computing": "#0a1118",
    "overlapped": "#1e5c96",
    "on-overlapped": "#f2f6fa",
    "exposed": "#f0935a",
    "on-exposed": "#140b05",
    "exposed-hatch": "#ffbb92",
    "waiting": "#f29055",
    "on-waiting": "#150b06",
    "transfer": "#8a4d20",
    "on-transfer": "#fff3e9",
    "unsplit": "#b4662c",
    "on-unsplit": "#120a04",
    "unsplit-hatch": "#6b3a15",
    "copies": "#45c4ad",
    "on-copies": "#06120f",
    "idle": "#3d4856",
    "on-idle": "#eef2f6",
    "between": "#202833",
    "on-between": "#eef2f7",
    "between-hatch": "#4d5967",
    "band": "#26384d",
    "step": "#e7ecf3",
    "fp-bp": "#5aaaf3",
    "tail": "#f0935b",
    "interval": "#c99be8",
    "warning": "#f3bf6b",
    "before": "#93a0b0",
    "now": "#7fbcf8",
    "worse": "#ff8a80",
    "better": "#6fd08c",
    "operator": "#5aaaf1",
    "under-operator": "#27394e",
}


@dataclass(frozen=True)
class Part:
    """One of the parts that together are the time of a rank or step."""

    column: str
    role: str
    label: str


@dataclass(frozen=True)
class Phase:
    """One curve, told apart by its dashes too."""

    column: str
    role: str
    label: str
    dashes: str | tuple[int, tuple[int, ...]]


PARTS = (
    Part("alone_ns", "computing", "Computing alone"),
    Part("overlapped_ns", "overlapped", "Overlapped communication"),
    Part("waiting_ns", "waiting", "Waiting for other ranks"),
    Part("transfer_ns", "transfer", "Transfer"),
    Part("unsplit_ns", "unsplit", "Waiting or transfer, not known which"),
    Part("copies_ns", "copies", "Copies"),
    Part("idle_ns", "idle", "Idle"),
    Part("edges_ns", "between", "Before the first kernel, and between steps"),
)
"""From the bottom up, or from the left: computing that overlaps nothing, and the rest. Waiting,
transfer and what is not known to be either are exposed communication."""

EXPOSED = Part("unsplit_ns", "exposed", "Exposed communication")
"""All of it, where nothing tells waiting from transfer."""

ALONE = (
    Part("computing_ns", "computing", "Computing"),
    Part("collective_alone_ns", "exposed", "Communication alone"),
    Part("receive_alone_ns", "overlapped", "Receives alone"),
)
"""Of a step, as MindSpore sums it up for clusters."""

PHASES = (
    Phase("marked_ns", "step", "Step", "solid"),
    Phase("fp_bp_ns", "fp-bp", "FP/BP", (0, (6, 2))),
    Phase("tail_ns", "tail", "Tail", (0, (2, 2))),
    Phase("interval_ns", "interval", "Interval", (0, (6, 2, 1, 2))),
)

QUEUES = (
    Phase("host", "fp-bp", "Host queue", (0, (6, 2))),
    Phase("device", "tail", "Device queue", (0, (2, 2))),
    Phase("to device", "interval", "Queue to the device", (0, (6, 2, 1, 2))),
)
"""Of batches on their way to the device."""

SIDES = (
    Phase("base_ns", "before", "Before", (0, (6, 2))),
    Phase("new_ns", "now", "Now", "solid"),
)


def shown_parts(table: Table, parts: Sequence[Part]) -> tuple[Part, ...]:
    """The parts that can be seen of a table; exposed communication is one where it is unsplit."""
    most = {part: int(np.ma.filled(table[part.column], 0).max(initial=0)) for part in parts}
    least_ns = max(1, sum(most.values()) * LEAST_SEEN)
    shown = [part for part in parts if most[part] >= least_ns]
    split = any(part.role in ("waiting", "transfer") for part in shown)
    return tuple(EXPOSED if part.role == "unsplit" and not split else part for part in shown)


def variables(colours: dict[str, str]) -> Iterator[str]:
    """Colours as declarations of CSS."""
    for role, colour in colours.items():
        yield f"--{role}: {colour};"
