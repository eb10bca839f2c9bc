"""What work one rank computes in a step, how long that takes, and at which frequency."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from timeline.analysis.step_membership import NO_STEP
from timeline.analysis.work.operators import TaskTypes, computing_rows
from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import rows_by_value
from timeline.columns.group_by import GroupRuns, group_by
from timeline.columns.strings import StringPool
from timeline.frozen import dataclass
from timeline.records.tables import AI_CORE_FREQUENCY, CounterSamples, Records, Steps

__all__ = ["NO_WORK", "RankWork", "WorkTimes", "computed_work"]

NO_WORK = 0
"""Digest of work that differs from step to step, or of none."""
LEAST_STEPS = 3
"""With so many steps left, the first of each graph is none that is compared: it warms up."""
MOST_MHZ = 1e6
"""No core is as fast; beyond, sums over the length of a capture would not be exact."""

_Hashes = npt.NDArray[np.uint64]


class WorkTimes(ColumnTable):
    """One row per type of operator: how often and how long it computes in the compared steps."""

    type: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class RankWork:
    """What one rank computes in the steps that are compared with those of other ranks.

    Those are the steps that do what most steps of the rank do; without steps the whole selection
    is one. Ranks do the same work if `digest` is equal, and run the same operators as often, on
    whatever shapes, if `types_digest` is; NO_WORK is equal to none. Times and counts are sums over
    the steps, codes are positions in `strings`.
    """

    steps: int = 0
    digest: int = NO_WORK
    types_digest: int = NO_WORK
    computing_ns: int = 0
    frequency_mhz: float | None = None
    """The mean while tasks compute; None where none was sampled."""
    strings: tuple[str, ...] = ("",)
    times: WorkTimes = field(default_factory=WorkTimes.empty)


def computed_work(
    records: Records, step: Rows, step_computing_ns: Int64, computing_ns: int
) -> RankWork:
    """What a rank computes in the steps that can be compared.

    Args:
        records: what is selected of the rank.
        step: (tasks,) the step of each task, NO_STEP for none.
        step_computing_ns: (steps,) how long the device computes in each.
        computing_ns: how long it computes in all, which counts where there are no steps.
    """
    tasks, strings = records.tasks, StringPool()
    rows = np.concatenate([np.empty(0, np.intp), *computing_rows(tasks)])
    if len(records.steps):
        rows = rows[step[rows] != NO_STEP]
    if not len(rows):
        return RankWork()
    types, _ = TaskTypes.of(records, strings).at(tasks, rows)
    steps = step[rows] if len(records.steps) else np.zeros(len(rows), np.intp)
    digests = _step_digests(steps, types, tasks.input_shapes[rows], strings, records.strings)
    digests = digests.take(_not_first(digests.step, records.steps))
    digest, whole = _most_common(digests.whole)
    types_digest, by_types = _most_common(digests.types)
    compared = digests.step[whole if digest != NO_WORK else by_types]
    here = np.isin(steps, compared)
    lengths_ns = (tasks.end_ns - tasks.start_ns)[rows[here]]
    groups = group_by(int(here.sum()), [types[here]])
    times = WorkTimes.of(
        len(groups.first),
        {
            "type": types[here][groups.first],
            "count": groups.count(),
            "total_ns": groups.sum(lengths_ns),
        },
    )
    if len(records.steps):
        computing_ns = int(step_computing_ns[compared].sum())
    frequency = _mean_frequency_mhz(records, rows[here])
    return RankWork(
        len(compared), digest, types_digest, computing_ns, frequency, tuple(strings), times
    )


class _StepDigests(ColumnTable):
    """What each step with computing tasks computes: with the shapes of inputs, and without."""

    step: Int64 = column(np.int64)
    whole: _Hashes = column(np.uint64)
    types: _Hashes = column(np.uint64)


def _step_digests(
    steps: Rows, types: Codes, shapes: Codes, strings: StringPool, pool: StringPool
) -> _StepDigests:
    """Sums of the hashes of the tasks of each step, whatever their order."""
    kinds = group_by(len(types), [types, shapes])
    of_kind = np.array(
        [
            _hash(strings[kind], pool[shape])
            for kind, shape in zip(
                types[kinds.first].tolist(), shapes[kinds.first].tolist(), strict=True
            )
        ],
        np.uint64,
    )
    of_type = np.array([_hash(name) for name in strings], np.uint64)
    by_step = group_by(len(steps), [steps])
    runs = GroupRuns.of(by_step.group)
    return _StepDigests(
        steps[by_step.first].astype(np.int64),
        _sum_of_runs(of_kind[kinds.group], runs),
        _sum_of_runs(of_type[types], runs),
    )


def _sum_of_runs(hashes: _Hashes, runs: GroupRuns) -> _Hashes:
    """Sums modulo 2^64."""
    ordered = hashes if runs.order is None else hashes[runs.order]
    found: _Hashes = np.add.reduceat(ordered, runs.first)
    return found


def _hash(*texts: str) -> int:
    digest = blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _not_first(steps: Int64, table: Steps) -> Bool:
    """Which steps can be typical: not the first of each graph, if enough others are left."""
    if not len(table):
        return np.ones(len(steps), np.bool_)
    order = np.lexsort((table.start_ns, table.graph))
    first = np.ones(len(order), np.bool_)
    first[1:] = table.graph[order][1:] != table.graph[order][:-1]
    later: Bool = ~np.isin(steps, order[first])
    return later if int(later.sum()) >= LEAST_STEPS else np.ones(len(steps), np.bool_)


def _most_common(digests: _Hashes) -> tuple[int, Bool]:
    """What most steps compute, and which do; NO_WORK and all steps if half of them differ."""
    digest, count = Counter(digests.tolist()).most_common(1)[0]
    if 2 * count <= len(digests):
        return NO_WORK, np.ones(len(digests), np.bool_)
    return digest, digests == np.uint64(digest)


def _mean_frequency_mhz(records: Records, rows: Rows) -> float | None:
    """The mean frequency of the AI Core while tasks run, each ns of a task counting alike.

    A sample holds until the next one of its series. What several series tell is averaged. A core
    that computes has a frequency: samples of 0 MHz tell none, nor do those of more than any core.
    """
    group = records.strings.find(AI_CORE_FREQUENCY)
    start_ns, end_ns = records.tasks.start_ns[rows], records.tasks.end_ns[rows]
    all_ns = int((end_ns - start_ns).sum())
    if group is None or not all_ns:
        return None
    means = []
    value = records.samples.value
    told = (value > 0) & (value <= MOST_MHZ)
    wanted = np.flatnonzero(records.series.group == group)
    for _, its in rows_by_value(records.samples.series, wanted):
        at = its[told[its]]
        if len(at):
            held = _HeldValues.of(records.samples.take(at))
            means.append(float((held.sum(end_ns) - held.sum(start_ns)).sum()) / all_ns)
    return sum(means) / len(means) if means else None


@dataclass(frozen=True)
class _HeldValues:
    """Samples (n,) in order of time, and the sum of value times ns from the first one to each.

    The sums are exact: whole MHz times the ns of a capture stay below 2^53.
    """

    time_ns: Int64
    value: Float64
    before: Float64

    @classmethod
    def of(cls, samples: CounterSamples) -> _HeldValues:
        order = np.argsort(samples.time_ns, kind="stable")
        time_ns, value = samples.time_ns[order], samples.value[order]
        before = np.concatenate([[0.0], np.cumsum(value[:-1] * np.diff(time_ns))])
        return cls(time_ns, value, before)

    def sum(self, moments_ns: Int64) -> Float64:
        """The sum of value times ns up to each moment; before the first sample its value holds."""
        at = np.maximum(np.searchsorted(self.time_ns, moments_ns, side="right") - 1, 0)
        return self.before[at] + self.value[at] * (moments_ns - self.time_ns[at])
