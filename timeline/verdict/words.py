"""Sentences of the verdict: the mean step, its idle time, and kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timeline.analysis.gains.findings import FindingKind
from timeline.analysis.idle.idle_sums import IdleCause
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.waiting import Basis
from timeline.analysis.work.framework_calls import STEP
from timeline.analysis.work.kernel_bounds import LATENCY, LEAST_BOUND, Bounds
from timeline.columns.columns import Bool, Int64
from timeline.columns.group_by import sum_by
from timeline.printable import printable
from timeline.records.not_given import NO_ID
from timeline.tables.short_names import shortened
from timeline.tables.table import Table, lines_by
from timeline.units import (
    format_count,
    format_flop,
    format_like,
    format_number,
    format_share,
    format_short,
)
from timeline.verdict.figures import Figures
from timeline.verdict.kernel_gaps import collected, gap_sentences, gaps_of, turns_sentence
from timeline.verdict.mean_step import MeanStep, are_of_ordinary_steps
from timeline.verdict.one_off import without_one_offs

LEAST_PART = 0.01
"""Minimum share of a mean step for a part to be notable, see `is_notable`."""
BUSY = 0.8
"""Minimum share of the time that a device is busy for only faster kernels to help."""
MOSTLY_KNOWN = 0.9
"""Minimum share of communication with known waiting for that share not to be mentioned."""


# -- runs without findings -------------------------------------------------------------------------


def nothing_sentence(mean: MeanStep, longest: str) -> str:
    """Return the sentence for a run without findings: how busy devices are.

    longest: the type of operator that takes longest, empty for none.
    """
    busy_ns = mean.computing_ns + mean.exposed_ns + mean.copies_ns
    busy = format_share(busy_ns, mean.period_ns)
    if busy_ns < BUSY * mean.period_ns:
        return f"Device busy {busy} of the time, and no single loss is worth 2% of the run."
    kernels = f"; {longest}" if longest else ""
    return f"Device busy {busy}: only faster kernels help{kernels}."


def basis_sentence(basis: Basis) -> str | None:
    """Return a sentence on the share of communication with known waiting, None if nearly all.

    Communication includes sends and receives, so all collectives may be a small share of it.
    """
    if basis.share >= MOSTLY_KNOWN or not 0 < basis.compared < basis.collectives:
        return None
    return (
        f"Who waits for whom is known of {basis.compared} of {basis.collectives} collectives "
        f"({format_share(basis.share, 1)} of communication time)."
    )


# -- parts of a step -------------------------------------------------------------------------------


def step_sentence(mean: MeanStep) -> str:
    """Return a sentence on the parts of a mean step."""
    step = "Device time" if not mean.steps else "Step"
    if mean.single is not None:
        step = f"Step {mean.single}"
    head = f"{step} ({format_short(mean.period_ns)})"
    if not mean.computing_ns:
        share = format_share(mean.communication_ns, mean.period_ns)
        return f"{head}: communication {share}; no compute tasks in this profile.{_mean_of(mean)}"
    parts = [
        f"{name} {share}%" + (f" ({detail})" if detail else "")
        for name, share, detail in step_shares(mean)
    ]
    return f"{head}: {', '.join(parts)}.{_mean_of(mean)}"


def step_shares(mean: MeanStep) -> list[tuple[str, int, str]]:
    """Return the parts of a mean step that round to 1% or more: name, percentage, and details."""
    if not mean.computing_ns:
        return [("communication", percent(mean.communication_ns, mean.period_ns), "")]
    parts = [
        ("compute", mean.computing_ns, ""),
        ("exposed communication", mean.exposed_ns, _split(mean)),
        ("copies", mean.copies_ns, ""),
        ("idle", mean.idle_ns, ""),
        ("free", mean.unexplained_ns, "why is not recorded"),
        ("before the first kernel", mean.before_ns, ""),
        ("between steps", mean.between_ns, ""),
    ]
    return [
        (name, percent(part_ns, mean.period_ns), detail)
        for name, part_ns, detail in parts
        if percent(part_ns, mean.period_ns)
    ]


def is_notable(part_ns: int, mean: MeanStep) -> bool:
    """Return whether a part of the mean step is worth reporting."""
    return part_ns >= LEAST_PART * mean.period_ns


def percent(part_ns: int, whole_ns: int) -> int:
    """Return a part as a rounded percentage."""
    return round(100 * part_ns / whole_ns)


def _split(mean: MeanStep) -> str:
    """Return the parts of exposed communication in percent of the step, empty if unknown."""
    if mean.waiting_ns is None or mean.transfer_ns is None:
        return ""
    rest_ns = mean.exposed_ns - mean.waiting_ns - mean.transfer_ns
    parts = {"waiting": mean.waiting_ns, "transfer": mean.transfer_ns, "not known": rest_ns}
    shares = {name: percent(part_ns, mean.period_ns) for name, part_ns in parts.items()}
    return ", ".join(f"{name} {percent}" for name, percent in shares.items() if percent > 0)


def _mean_of(mean: MeanStep) -> str:
    counts = [f"{mean.ranks} ranks"] if mean.ranks > 1 else []
    counts += [f"{mean.steps} steps"] if mean.steps > 1 else []
    return f" Mean of {' and '.join(counts)}." if counts else ""


def ends_sentence(steps: Table) -> str | None:
    """Return a sentence on the last step with device tasks, None if no later steps are marked."""
    if not len(steps) or not steps["tasks"].any():
        return None
    ends = list[tuple[int, int, int]]()  # number of steps up to the last with tasks, step, rank
    for rank in sorted(set(steps["rank"].tolist())):
        of_rank = steps.take(steps["rank"] == rank)
        numbers = of_rank["step"].tolist()
        count = max(
            (at for at, tasks in enumerate(of_rank["tasks"].tolist(), 1) if tasks), default=0
        )
        if 0 < count < len(numbers):
            ends.append((count, numbers[count - 1], rank))
    if not ends:
        return None
    _, step, rank = min(ends)
    numbers = steps["step"][steps["rank"] == rank].tolist()
    on_rank = "" if len({end[:2] for end in ends}) == 1 else f" of rank {rank}"
    first, last = min(numbers), max(numbers)
    marked = f" of {last}" if first < 2 else f"; steps are marked up to {last}"
    return f"Device tasks{on_rank} end at step {step}{marked}."


LONGEST_NAME = 40
"""Maximum length of the name of a call."""
LEAST_COLLECTING_NS = 10_000
"""A gap that the collection of metrics may explain; kernels follow each other in a few us."""
NEARLY_ALL = 0.9
"""Share of its cause above which a call is named without its own time."""
MOST_CAUSES = 4
MOST_CALLS = 2
LEAST_SHARE = 0.05
"""Minimum share of a cause in idle time, and of a call in its cause, to be reported."""


@dataclass(frozen=True)
class MeanIdle:
    """Idle time in the period of the mean step of all ranks, or in the whole selection.

    Unlike `MeanStep.idle_ns`, it includes time before the first kernel and between steps.

    causes: the value of each `IdleCause` and its time, longest first. calls: the host calls that
    took longest, for each cause. least_ns: minimum gap of the device between tasks, 0 if unknown.
    collected: what the profiler collected of each task, which may take that time, empty if nothing.
    left_out: whether the causes leave out the one-off cost of a rank that has one in this time.
    """

    causes: tuple[tuple[str, int], ...]
    calls: Mapping[str, tuple[tuple[str, int], ...]]
    least_ns: int = 0
    collected: str = ""
    left_out: Mapping[int, bool] = field(default_factory=dict)

    @property
    def total_ns(self) -> int:
        """Return the whole idle time."""
        return sum(total_ns for _, total_ns in self.causes)

    @property
    def is_unexplained(self) -> bool:
        """Return whether the launches of nearly all idle time are not recorded."""
        unknown_ns = dict(self.causes).get(IdleCause.NOT_RECORDED.value, 0)
        return unknown_ns > NEARLY_ALL * self.total_ns

    def largest(self, span_ns: int) -> tuple[tuple[str, int], ...]:
        """Return the causes to report, none if devices hardly idle in the span."""
        total_ns = self.total_ns
        if total_ns < LEAST_SHARE * span_ns:
            return ()
        return tuple(
            (cause, cause_ns)
            for cause, cause_ns in self.causes[:MOST_CAUSES]
            if cause_ns >= LEAST_SHARE * total_ns
        )


def mean_idle(figures: Figures) -> MeanIdle | None:
    """Return the idle time of a mean ordinary step without one-off costs, None if it is not known.

    Without ordinary steps, return the mean over ranks of the whole selection.
    """
    if not len(figures.idle):
        return None
    whole = figures.idle.take(np.ma.getmaskarray(figures.idle["step"]))
    steps = int(figures.steps["ordinary"].sum()) if len(figures.steps) else 0
    count, causes, calls = len(np.unique(whole["rank"])), whole, figures.idle_calls
    if steps:
        count, causes = steps, figures.idle.take(are_of_ordinary_steps(figures.idle, figures.steps))
    if len(calls):
        chosen = np.ma.getmaskarray(calls["step"])
        calls = calls.take(are_of_ordinary_steps(calls, figures.steps) if steps else chosen)
    causes, calls, left_out = without_one_offs(causes, calls, figures.facts)
    mean_ns = {cause: round(total_ns / count) for cause, total_ns in _sums(causes).items()}
    return MeanIdle(
        tuple(sorted(mean_ns.items(), key=lambda item: (-item[1], item[0]))),
        {cause: _longest_calls(calls, cause, count) for cause in mean_ns},
        min(np.ma.compressed(whole["least_ns"]).tolist(), default=0),
        max(map(collected, figures.facts), key=len, default=""),
        left_out,
    )


def _sums(rows: Table, name: str = "cause") -> dict[str, int]:
    """Return the time of each cause or call."""
    sums_ns: dict[str, int] = {}
    for value, total_ns in zip(rows[name].tolist(), rows["total_ns"].tolist(), strict=True):
        sums_ns[value] = sums_ns.get(value, 0) + total_ns
    return sums_ns


def _longest_calls(calls: Table, cause: str, count: int) -> tuple[tuple[str, int], ...]:
    """Return the host calls that took longest within a cause, with the mean over `count` steps.

    Marks of steps are left out: they are no calls, but cover what the program did unrecorded.
    """
    if not len(calls):
        return ()
    rows = calls.take(calls["cause"] == cause)
    sums = _sums(rows, "call")
    sums = {call: total_ns for call, total_ns in sums.items() if not call.startswith(STEP)}
    longest = sorted(sums.items(), key=lambda item: (-item[1], item[0]))[:MOST_CALLS]
    names = shortened([printable(call) for call, _ in longest], LONGEST_NAME, "...")
    lines = lines_by(rows, ("call",))
    return tuple(
        (_with_line(name, call, total_ns, *lines.get((call,), ("", 0))), round(total_ns / count))
        for name, (call, total_ns) in zip(names, longest, strict=True)
    )


def _with_line(name: str, call: str, total_ns: int, line: str, line_ns: int) -> str:
    """Return the short name of a call with its line of code, unless the call is that line."""
    if not line or line in call:
        return name
    others = "" if 2 * line_ns > total_ns else " and others"
    return f"{name} in {shortened([printable(line)], LONGEST_NAME, '...')[0]}{others}"


def idle_sentence(
    idle: MeanIdle,
    *,
    steps: int,
    span_ns: int,
    computing: bool = True,
    beyond: bool = False,
    copies_ns: int = 0,
) -> str | None:
    """Return a sentence on idle time and its causes, None if it is a small share of a step.

    steps: see `MeanStep`; if several, times are means. span_ns: period of a step.
    computing: whether the profile holds compute tasks; if not, only waits for data are known.
    beyond: whether some of it is before the first kernel or between steps, see `MeanIdle`.
    copies_ns: copies in that time, which are not idle time.
    """
    if not computing:
        return _data_sentence(idle, steps, span_ns)
    total_ns, causes = idle.total_ns, idle.largest(span_ns)
    if not causes:
        return None
    head = f"Idle {format_like(total_ns, total_ns)}"
    if steps > 1:
        head += " per step"
    if beyond:
        head += ", also before the first kernel and between steps"
        if copies_ns >= LEAST_SHARE * span_ns:
            head += f", where copies take {format_like(copies_ns, copies_ns)}"
    if any(idle.left_out.values()):
        head += ", without one-off costs"
    if idle.is_unexplained:
        return f"{head}: the launches that would tell why are not in this profile."
    listed = ", ".join(_cause(idle, cause, cause_ns) for cause, cause_ns in causes)
    return f"{head}: {listed}."


def _data_sentence(idle: MeanIdle, steps: int, span_ns: int) -> str | None:
    waited_ns = dict(idle.causes).get(IdleCause.WAITING_FOR_DATA.value, 0)
    if waited_ns < LEAST_SHARE * span_ns:
        return None
    per = " per step" if steps > 1 else ""
    return f"Waiting for data: {format_like(waited_ns, waited_ns)}{per}."


def _cause(idle: MeanIdle, cause: str, cause_ns: int) -> str:
    """Format a cause with its time, and details in brackets."""
    total_ns, calls = idle.total_ns, idle.calls.get(cause, ())
    named = [
        f"{call} {format_like(call_ns, total_ns)}"
        for call, call_ns in calls
        if call_ns > LEAST_SHARE * cause_ns
    ]
    if calls and calls[0][1] > NEARLY_ALL * cause_ns:
        named = [calls[0][0]]
    if cause == IdleCause.BETWEEN_TASKS.value:
        named = [f"at least {format_short(idle.least_ns)} each"] if idle.least_ns else []
        if idle.collected and idle.least_ns >= LEAST_COLLECTING_NS:
            named += [f"which may be the cost of collecting {idle.collected} for each task"]
    more = f" ({', '.join(named)})" if named else ""
    return f"{format_like(cause_ns, total_ns)} {IdleCause(cause).words}{more}"


# -- kernels ---------------------------------------------------------------------------------------


MOST_KERNELS = 3
"""Operators with a sentence each."""
MOST_OF_COMPUTE = 0.9
"""Share of compute that these operators take at least in a capture of few operators."""
LEAST_OF_COMPUTE = 0.05
"""Share of compute below which an operator has no sentence."""
LEAST_WARM = 5
"""Number of launches from which the first one is compared with the others."""
COLD = 1.2
"""A first run is cold if it takes this many times the median of the others."""
OUTSIDE = 0.2
"""Share of the time outside the cores from which it is reported."""
MOSTLY_OUTSIDE = 0.5
"""Share of the time outside the cores from which that, and no pipe, is what bounds a kernel."""
FULLY, MOSTLY = 0.8, 0.6
MEASURED = 0.5
"""Share of compute that must be measured for a sentence on all of it."""
COMPLETE = 0.9
"""Share of the time of matrix products with known work from which that is all of it."""
LEAST_PIPE_SHARE = 0.1
"""Share of compute from which a pipe is named as what bounds it."""
MOST_CHARACTERS = 60

_OUTSIDE_CORES = "outside"
_PIPES = {
    "cube": "the cube unit",
    "vector": "the vector unit",
    "scalar": "the scalar unit",
    "mte1": "copies from L1 to L0",
    "mte2": "loads from global memory",
    "mte3": "stores to global memory",
    "fixpipe": "writing out cube results",
    LATENCY: "latency",
    _OUTSIDE_CORES: "time outside the cores",
}
_LABELS = {"mte1": "MTE1", "mte2": "MTE2", "mte3": "MTE3", "fixpipe": "FixPipe"}
"""Names of pipes in vendor documentation, where they differ from those in tables."""


def kernel_sentences(figures: Figures) -> Iterator[str]:
    """Yield sentences on the kernels, and on the gaps between them, of a capture of few operators.

    See `few_kernels`.
    """
    rank, kernels = few_kernels(figures)
    if rank is None:
        return
    names = [one.name for one in kernels.values()]
    group = kernel_groups(rank)
    for at, one in kernels.items():
        yield one.sentence(with_core=names.count(one.name) > 1)
        yield from filter(None, [turns_sentence(rank.operators.kernels, group == at, _LABELS)])
    hosts = [one for one in figures.findings.found if one.kind is FindingKind.SLOW_HOSTS]
    gain_ns = sum(one.further_ns for one in hosts[:1])
    kernel_ns = next(iter(kernels.values())).median_ns
    yield from gap_sentences(gaps_of(rank), kernel_ns, gain_ns, collected(rank))


def few_kernels(figures: Figures) -> tuple[RankFacts | None, dict[int, Kernel]]:
    """Return the kernels of a capture of few operators by row of OperatorTimes, longest first.

    It then has no steps and no collectives. The rank that computes longest stands for all; None
    if the capture is of many operators.
    """
    ranks = [one for one in figures.facts if len(one.operators.runs)]
    if not ranks or len(figures.steps):
        return None, {}
    rank = max(ranks, key=lambda one: int(one.operators.times.total_ns.sum()))
    group = kernel_groups(rank)
    total_ns = sum_by(group, rank.operators.times.total_ns, len(group))
    order = np.argsort(-total_ns, kind="stable")
    all_ns = int(total_ns.sum())
    if int(total_ns[order[:MOST_KERNELS]].sum()) < MOST_OF_COMPUTE * all_ns:
        return None, {}
    bounds = rank.operators.warm.bounds(group, len(group))
    shown = [
        at for at in order[:MOST_KERNELS].tolist() if total_ns[at] >= LEAST_OF_COMPUTE * all_ns
    ]
    return rank, {at: Kernel.of(rank, at, bounds, group == at) for at in shown}


def kernel_groups(rank: RankFacts) -> Int64:
    """Return the first row of the same type and core for each row of OperatorTimes."""
    times, first = rank.operators.times, dict[tuple[int, int, bool], int]()
    keys = zip(times.type.tolist(), times.core.tolist(), times.communication.tolist(), strict=True)
    return np.array([first.setdefault(key, at) for at, key in enumerate(keys)], np.int64)


@dataclass(frozen=True)
class Kernel:
    """One operator of a capture of few.

    pipe: see `Bounds.bound`. cores: number in use and of the device (NO_ID if not known), None
    unless few are in use; are_counted: see `Bounds`. outside: share of the time outside the cores,
    0 if not known. All but count and first_ns are of warm runs, if there are any.
    least_ns, most_ns: of the shortest and longest run. alike: whether the median stands for all.
    """

    name: str
    core: str
    count: int
    first_ns: int
    median_ns: int
    pipe: str
    busy: float
    next_pipe: str
    next_busy: float
    cores: tuple[int, int] | None
    are_counted: bool
    outside: float
    least_ns: int
    most_ns: int
    alike: bool

    @classmethod
    def of(cls, rank: RankFacts, at: int, bounds: Bounds, rows: Bool) -> Kernel:
        """Return the operator of some rows of OperatorTimes, a mask; `at` is the first of them."""
        operators = rank.operators
        times, runs = operators.times, operators.runs
        (row,) = np.flatnonzero(runs.operator == at)
        core, device = operators.strings[times.core[at]], operators.kernels.cores
        most = device.vector if "AIV" in core or "VECTOR" in core else device.cube
        used = float(bounds.cores[at])
        (name,) = shortened([operators.strings[times.type[at]]], MOST_CHARACTERS)
        return cls(
            name,
            core,
            int(runs.count[row]),
            int(runs.first_ns[row]),
            int(runs.median_ns[row]),
            str(bounds.bound[at]),
            float(bounds.bound_share[at]),
            str(bounds.next_pipe[at]),
            float(bounds.next_share[at]),
            (round(used), most) if used < max(most / 2, 1.5) else None,
            bool(bounds.are_counted[at]),
            float(np.nan_to_num(bounds.outside_core[at])),
            int(runs.least_ns[row]),
            int(runs.most_ns[row]),
            bool(runs.alike[row]),
        )

    def sentence(self, *, with_core: bool) -> str:
        """Return what bounds the kernel, how long it takes, and how it ran."""
        name = f"{self.name} on {self.core}" if with_core else self.name
        took = self.took()
        head = f"{name} takes {took}"
        if self.outside >= MOSTLY_OUTSIDE:
            spent = f"{name} spends {format_share(self.outside, 1)} of {took} outside the cores"
            spent = ", ".join([spent, *self._runs(), *self._cores()])
            return f"{spent}; in them, it is {self.bound_text()}." if self.pipe else f"{spent}."
        if self.pipe:
            head = f"{name} is {self.bound_text()}: {took}"
        return ", ".join([head, *self._runs(), *self._cores()]) + "."

    def took(self) -> str:
        """Return the median duration, or the range of durations if runs are not alike."""
        if self.alike:
            return format_short(self.median_ns)
        return f"{format_short(self.least_ns)} to {format_short(self.most_ns)}"

    def bound_text(self) -> str:
        """Return what bounds it, as the end of a sentence; `pipe` must be known."""
        if self.pipe == LATENCY:
            return (
                f"limited by latency (no pipe is busy {LEAST_BOUND:.0%} of the time: too little "
                "work, or its instructions wait for each other)"
            )
        how = "bound" if self.busy >= FULLY else "mostly bound"
        how = how if self.busy >= MOSTLY else "limited"
        label = f"{_LABELS[self.pipe]} " if self.pipe in _LABELS else ""
        busy = f"{label}{format_share(self.busy, 1)} busy"
        if self.next_busy:
            other = _LABELS.get(self.next_pipe, self.next_pipe)
            busy += f"; {other} {format_share(self.next_busy, 1)}"
        return f"{how} by {_PIPES[self.pipe]} ({busy})"

    def _runs(self) -> Iterator[str]:
        if self.count == 1:
            yield "ran once, cold"
        elif self.alike and self.count > LEAST_WARM and self.first_ns >= COLD * self.median_ns:
            yield f"{format_number(self.count - 1)} warm launches"
            yield f"first {format_like(self.first_ns, self.median_ns)}"
        else:
            yield f"{format_number(self.count)} launches"

    def _cores(self) -> Iterator[str]:
        if self.cores is not None:
            used, device = self.cores
            cores = format_count(used if device == NO_ID else device, "core")
            on = cores if device in (NO_ID, 1) else f"{used} of {cores}"
            yield f"{on} busy on average" if self.are_counted else f"on {on}"
        if OUTSIDE <= self.outside < MOSTLY_OUTSIDE:
            core_ns = round((1 - self.outside) * self.median_ns)
            yield f"{format_like(core_ns, self.median_ns)} of it in the cores"


def compute_sentence(operators: Iterable[Mapping[str, Any]]) -> str | None:
    """Return what bounds the compute of all ranks, None unless most of it was measured.

    operators: rows of `total_by_type`.
    """
    by_pipe, all_ns = dict[str, int](), 0
    for row in operators:
        if row["communication"]:
            continue
        total_ns = row["total_ns"]
        all_ns += total_ns
        is_outside = (row["outside_core"] or 0) >= MOSTLY_OUTSIDE
        pipe = _OUTSIDE_CORES if is_outside else row["bound"]
        if pipe:
            by_pipe[pipe] = by_pipe.get(pipe, 0) + total_ns
    if sum(by_pipe.values()) < MEASURED * all_ns or not all_ns:
        return None
    longest = sorted(by_pipe.items(), key=lambda one: -one[1])[:MOST_KERNELS]
    parts = [
        f"{_PIPES[pipe]} {format_share(total_ns, all_ns)}"
        for pipe, total_ns in longest
        if total_ns >= LEAST_PIPE_SHARE * all_ns
    ]
    return f"Compute is bound by {', '.join(parts)} of its time." if parts else None


def work_sentence(figures: Figures) -> str | None:
    """Return how fast matrix products ran, None unless the work of half of their time is known."""
    flop = flop_ns = products_ns = at_peak_ns = with_peak_ns = 0.0
    for rank in figures.facts:
        shapes = rank.operators.shapes
        flop += float(shapes.sums.flop.sum())
        flop_ns += float(shapes.sums.flop_ns.sum())
        products_ns += float(shapes.sums.products_ns.sum())
        of_rank = shapes.at_peak()
        at_peak_ns += float(of_rank[0].sum())
        with_peak_ns += float(of_rank[1].sum())
    if not flop or flop_ns < MEASURED * products_ns:
        return None
    rate = f"Matrix products run at {format_flop(round(flop / flop_ns * 1e9))}/s"
    if at_peak_ns:
        rate += f", {format_share(at_peak_ns, with_peak_ns)} of the peak"
        if at_peak_ns > with_peak_ns and any(
            one.operators.shapes.peak_flop_per_s for one in figures.facts
        ):
            rate += ", which was given lower than what was measured"
        periods_ns = int(np.ma.filled(figures.steps["period_ns"], 0).sum())
        if periods_ns and with_peak_ns >= COMPLETE * products_ns:
            return f"{rate}; over whole steps {format_share(at_peak_ns, periods_ns)}."
    if flop_ns < COMPLETE * products_ns:
        rate += f" (shapes tell the work of {format_share(flop_ns, products_ns)} of their time)"
    return f"{rate}."
