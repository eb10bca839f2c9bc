"""Sentences of the verdict on few operators: gaps between kernels, pipes in turn, host calls."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from timeline.analysis.idle.kernel_gaps import CallsOutside, KernelGaps
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.work.kernel_bounds import KernelTotals
from timeline.printable import printable
from timeline.records.kernel_metrics import PIPES
from timeline.records.profiler_tables import L2_HIT_RATES, CollectionSettings
from timeline.tables.short_names import shortened
from timeline.units import format_duration, format_like, format_number, format_share, format_short

LEAST_GAPS = 5
"""Minimum number of gaps for a sentence on them."""
NOTABLE = 0.05
"""Minimum share of the time of a device for gaps to be worth a sentence."""
LONG = 0.2
"""Minimum length of a gap of the device, as a share of a kernel, for a sentence on it."""
NEARLY_ALL = 0.9
MOST_OF_NAME = 60
IN_TURN = (0.9, 1.1)
"""Sum of the shares of all pipes between which they seem to run one after another."""
LEADS = 0.6
"""Share from which one pipe alone bounds a kernel, so that others in turn hardly matter."""
LEAST_PIPE = 0.05
"""Minimum share of a pipe to be listed."""


def collected(rank: RankFacts) -> str:
    """Return what the profiler collected of each kernel, which takes time between kernels.

    Empty if nothing is known to be collected.
    """
    settings = rank.profiler_tables.of(CollectionSettings)
    if settings.l2_cache.any() or any(one.what == L2_HIT_RATES for one in rank.profile.unused):
        return "L2 cache metrics"
    return "metrics" if rank.operators.kernels else ""


def gaps_of(rank: RankFacts) -> KernelGaps:
    """Return the gaps between the kernels of a rank, empty if they were not requested."""
    return KernelGaps() if rank.idle is None else rank.idle.kernel_gaps


def gap_sentences(gaps: KernelGaps, kernel_ns: int, gain_ns: int, what: str) -> Iterator[str]:
    """Yield who makes the gaps between kernels: the device, or its host.

    kernel_ns: the median duration of a kernel. gain_ns: upper bound of what a host that always
    launches in time would win, 0 for nothing. what: see `collected`.
    """
    whole = gaps.all
    if whole.count < LEAST_GAPS or whole.total_ns < NOTABLE * gaps.span_ns:
        return
    if has_reason(gaps):
        yield _waits(gaps, what)
    known = gaps.queued.count + gaps.late.count
    if 2 * known < whole.count:
        return
    by_device = 2 * gaps.queued.count >= known and gaps.queued.median_ns >= LONG * kernel_ns
    if by_device:
        least = f", at least {format_short(gaps.least_ns)}" if gaps.least_ns else ""
        yield (
            f"The device makes most gaps between kernels: in {format_number(gaps.queued.count)} of "
            f"{format_number(whole.count)}, the next kernel was launched before the device became "
            f"free, yet it starts {format_short(gaps.queued.median_ns)} later (median{least})"
            f"{_cost(what)}."
        )
    if gaps.late.total_ns >= NOTABLE * gaps.span_ns:
        # The device needs some time of each gap, however early kernels are launched.
        yield _late(gaps, kernel_ns, min(gain_ns, gaps.most_ns))


def _cost(what: str) -> str:
    return f"; collecting {what} for each kernel may be part of that" if what else ""


def _late(gaps: KernelGaps, kernel_ns: int, gain_ns: int) -> str:
    """Return a sentence on the gaps whose kernels were launched late, and on what they cost."""
    late, whole = gaps.late, gaps.all
    is_bound = 2 * late.count >= whole.count and 2 * late.median_ns >= kernel_ns
    each = f", {format_short(late.median_ns)} each (median)" if is_bound else ""
    text = (
        f"{'Host-bound: in' if is_bound else 'In'} {format_number(late.count)} of "
        f"{format_number(whole.count)} gaps between kernels{each}, the next kernel was launched "
        f"only after the device became free: {_of(late.total_ns, whole.total_ns)} idle"
    )
    has_waits = gaps.waited.total_ns >= NOTABLE * whole.total_ns
    if has_waits:
        text += (
            f", {format_like(gaps.waited.total_ns, whole.total_ns)} of that in "
            f"{format_number(gaps.waited.count)} gaps in which the program waits for the device "
            f"({_name(gaps.call)})"
        )
    if gain_ns >= NOTABLE * gaps.span_ns:
        text += (
            "; if the host always launched in time, the run would be at most "
            f"{format_share(gain_ns, gaps.span_ns)} shorter"
        )
        if has_waits:
            rest_ns = gain_ns - gaps.waited.total_ns
            rest = format_share(rest_ns, gaps.span_ns) if rest_ns > 0 else "not at all"
            text += f", {rest} if these waits stay"
    if 2 * gaps.start_ns >= late.median_ns:
        start = format_like(gaps.start_ns, late.median_ns)
        text += f", less if the {start} from a launch to the start of its kernel remain"
    return f"{text}."


def has_reason(gaps: KernelGaps) -> bool:
    """Return whether waits of the host explain gaps, most of whose launches are not recorded."""
    count = gaps.all.count
    is_unknown = 2 * (gaps.queued.count + gaps.late.count) < count
    return is_unknown and count >= LEAST_GAPS and gaps.waited.count >= NEARLY_ALL * count


def _waits(gaps: KernelGaps, what: str) -> str:
    return (
        f"The host waits for the device after each kernel ({_name(gaps.call)}, in "
        f"{format_number(gaps.waited.count)} of {format_number(gaps.all.count)} gaps between "
        f"kernels): {format_short(gaps.waited.median_ns)} idle each (median), "
        f"{format_share(gaps.waited.total_ns, gaps.span_ns)} of the time{_cost(what)}."
    )


def _of(part_ns: int, whole_ns: int) -> str:
    if part_ns == whole_ns:
        return f"all {format_like(whole_ns, whole_ns)}"
    return f"{format_like(part_ns, whole_ns)} of {format_like(whole_ns, whole_ns)}"


def _name(call: str) -> str:
    return shortened([printable(call)], MOST_OF_NAME, "...")[0]


def host_outside_sentence(gaps: KernelGaps) -> str | None:
    """Return how long the host works before the first or after the last kernel.

    None unless it is longer than the time from the first to the last kernel.
    """
    sides = ((gaps.before, "before the first"), (gaps.after, "after the last"))
    parts = [
        f"{format_duration(calls.total_ns)} {where} kernel ({_longest(calls)})"
        for calls, where in sides
        if calls.total_ns > gaps.span_ns
    ]
    return f"Host calls outside that time: {' and '.join(parts)}." if parts else None


def _longest(calls: CallsOutside) -> str:
    name = _name(calls.call)
    if calls.call_ns > NEARLY_ALL * calls.total_ns:
        return name
    return f"{name} {format_like(calls.call_ns, calls.total_ns)}"


def turns_sentence(kernels: KernelTotals, at: int, labels: dict[str, str]) -> str | None:
    """Return that the pipes of an operator seem to run one after another, None if they do not.

    Their shares of the time then add up to about all of it; if they overlapped, it would be more.

    at: row in OperatorTimes. labels: names of pipes that differ from those in tables.
    """
    measured_ns = int(kernels.sums.measured_ns[kernels.sums.operator == at].sum())
    pipes = kernels.pipes.take(kernels.pipes.operator == at)
    if not measured_ns or not len(pipes):
        return None
    busy = np.zeros((2, len(PIPES)))
    np.add.at(busy, (pipes.side, pipes.pipe), pipes.busy_ns / measured_ns)
    share = busy[int(np.argmax(busy.sum(axis=1)))]
    whole = float(share.sum())
    if not IN_TURN[0] <= whole <= IN_TURN[1] or share.max() >= LEADS:
        return None
    listed = ", ".join(
        f"{labels.get(PIPES[pipe], PIPES[pipe])} {format_share(share[pipe], 1)}"
        for pipe in np.argsort(-share, kind="stable").tolist()
        if share[pipe] >= LEAST_PIPE
    )
    return (
        f"Its pipes seem to run one after another, as their shares add up to {whole:.0%} "
        f"({listed}): overlapping loads, computing and stores (double buffering) would help."
    )
