"""The suggested command that exactly shows steps that a limit left out or merged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.commands.next_command import typed_path
from timeline.declarations import format_flags
from timeline.errors import format_ids
from timeline.fitting.writer import Written
from timeline.options import ExportOptions
from timeline.printable import command_line
from timeline.profile import Profile
from timeline.ranks.read_ranks import JoinedRanks
from timeline.selection import Selection

TARGET_FILL = 0.8
"""Share of the limits that the suggested steps may take, since their sizes are estimates."""


def narrower_command(
    profile: Profile,
    selection: Selection,
    options: ExportOptions,
    written: Written,
    joined: JoinedRanks,
) -> str:
    """Return a command that exactly shows steps that were left out or merged, "" if none were."""
    kept = written.kept
    missing = [step for facts in written.facts if facts.missing for step in facts.missing.steps]
    if missing:
        order = list(dict.fromkeys(missing))
        chosen = order[: max(1, len(kept.steps))]
    elif kept.limited_by is not None:
        chosen = _steps_that_fit(written)
    else:
        return ""
    if not chosen:
        return ""
    words = ["tlexport", typed_path(profile.path)]
    if selection.ranks is not None:
        words += ["--ranks", format_ids(selection.ranks, most=1_000_000)]
    if selection.graphs is not None:
        words += ["--graphs", format_ids(selection.graphs, most=1_000_000)]
    if joined.origin_ns is None:
        narrower = ["--steps", format_ids(chosen, most=1_000_000)]
    else:
        # A window counts from the first record of the selected steps: other steps would move it.
        start_ns, end_ns = _window_of(chosen, joined)
        narrower = ["--window", f"{start_ns}ns:{end_ns}ns"]
        if selection.steps is not None:
            narrower += ["--steps", format_ids(selection.steps, most=1_000_000)]
    layers = selection.layers_of(options.kind)
    if layers != Selection().layers_of(options.kind):
        words += ["--layers", ",".join(sorted(layer.value for layer in layers))]
    words += format_flags(profile.reading)
    words += [*narrower, "--kind", options.kind.value]
    return command_line(words)


def _window_of(steps: Sequence[int], joined: JoinedRanks) -> tuple[int, int]:
    """Return the part of the window in which steps run on the device, in ns from its origin."""
    assert joined.origin_ns is not None
    starts_ns, ends_ns = list[int](), list[int]()
    for facts, request, move in zip(joined.facts, joined.requests, joined.clock.moves, strict=True):
        among = np.isin(facts.steps.iteration, steps) & facts.step_totals.known
        if among.any() and request.window_ns is not None:
            first_ns, last_ns = map(move.move.of_time, request.window_ns)
            starts_ns.append(max(first_ns, int(facts.device_start_ns[among].min())))
            ends_ns.append(min(last_ns, int(facts.device_end_ns[among].max())))
    return min(starts_ns) - joined.origin_ns, max(ends_ns) - joined.origin_ns


def _steps_that_fit(written: Written) -> list[int]:
    """Return the slowest ordinary step and the steps after it that should fit unmerged."""
    length_ns: dict[int, int] = {}
    for facts, ordinary in zip(written.facts, ordinary_steps(written.facts), strict=True):
        totals = facts.step_totals
        for step, span_ns in zip(
            facts.steps.iteration[totals.known].tolist(),
            np.where(ordinary, totals.span_ns, 0)[totals.known].tolist(),
            strict=True,
        ):
            length_ns[step] = max(length_ns.get(step, 0), span_ns)
    if len(length_ns) < 2 or not written.exact_share:
        return []
    fitting = TARGET_FILL / written.exact_share
    count = min(len(length_ns) - 1, max(1, int(len(length_ns) * fitting)))
    order = list(length_ns)
    slowest = order.index(max(length_ns, key=lambda step: length_ns[step]))
    first = min(slowest, len(order) - count)
    return order[first : first + count]
