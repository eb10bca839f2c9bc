"""Work that each rank computes in a step, and causes for computing longer than the peers."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from timeline.analysis.steps import NO_STEP
from timeline.analysis.work.operators import TaskTypes, computing_rows
from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import distinct_values, rows_by_value
from timeline.columns.group_by import GroupRuns, group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import FLOAT_NOT_GIVEN
from timeline.records.tables import AI_CORE_FREQUENCY, CounterSamples, Records, Steps

NO_WORK = 0
"""Digest of no work, or of work that differs from step to step."""
LEAST_STEPS = 3
"""Minimum number of remaining steps for the first step of each graph to be skipped as warm-up."""
MOST_MHZ = 1e6
"""Maximum plausible frequency of a core; above it, sums over a capture would not be exact."""

_Hashes = npt.NDArray[np.uint64]


class WorkTimes(ColumnTable):
    """Number and duration of computing tasks in the compared steps, one row per operator type."""

    type: Codes = column(np.int32)
    count: Int64 = column(np.int64)
    total_ns: Int64 = column(np.int64)


@dataclass(frozen=True, slots=True)
class RankWork:
    """Work of one rank in the steps that are compared with those of other ranks.

    These are the steps whose work equals that of most steps of the rank; without steps the whole
    selection is one. Ranks with equal `digest` do the same work; ranks with equal `types_digest`
    run the same operators equally often, on any shapes. NO_WORK equals nothing. Times and counts
    are sums over the steps, codes are positions in `strings`.
    """

    steps: int = 0
    digest: int = NO_WORK
    types_digest: int = NO_WORK
    computing_ns: int = 0
    frequency_mhz: float | None = None
    """Mean while tasks compute; None if not sampled."""
    strings: tuple[str, ...] = ("",)
    times: WorkTimes = field(default_factory=WorkTimes.empty)


def computed_work(
    records: Records, step: Rows, step_computing_ns: Int64, computing_ns: int
) -> RankWork:
    """Return the work of a rank in the steps that can be compared.

    Args:
        records: the selected records of the rank.
        step: (tasks,) the step of each task, NO_STEP for none.
        step_computing_ns: (steps,) computing time of each step.
        computing_ns: total computing time, used if there are no steps.
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
    """Digests of the work of each step with computing tasks, with and without input shapes."""

    step: Int64 = column(np.int64)
    whole: _Hashes = column(np.uint64)
    types: _Hashes = column(np.uint64)


def _step_digests(
    steps: Rows, types: Codes, shapes: Codes, strings: StringPool, pool: StringPool
) -> _StepDigests:
    """Sum the hashes of the tasks of each step, independent of their order."""
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
    """Return the sum of each run modulo 2^64."""
    ordered = hashes if runs.order is None else hashes[runs.order]
    sums: _Hashes = np.add.reduceat(ordered, runs.first)
    return sums


def _hash(*texts: str) -> int:
    digest = blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=8)
    return int.from_bytes(digest.digest(), "little")


def _not_first(steps: Int64, table: Steps) -> Bool:
    """Return a mask of the steps that can be typical.

    The first step of each graph is excluded if enough others remain.
    """
    if not len(table):
        return np.ones(len(steps), np.bool_)
    order = np.lexsort((table.start_ns, table.graph))
    first = np.ones(len(order), np.bool_)
    first[1:] = table.graph[order][1:] != table.graph[order][:-1]
    later: Bool = ~np.isin(steps, order[first])
    return later if int(later.sum()) >= LEAST_STEPS else np.ones(len(steps), np.bool_)


def _most_common(digests: _Hashes) -> tuple[int, Bool]:
    """Return the digest of most steps and their mask; NO_WORK and all steps without one."""
    digest, count = Counter(digests.tolist()).most_common(1)[0]
    if 2 * count <= len(digests):
        return NO_WORK, np.ones(len(digests), np.bool_)
    return digest, digests == np.uint64(digest)


def _mean_frequency_mhz(records: Records, rows: Rows) -> float | None:
    """Return the mean AI Core frequency while tasks run, weighted by the duration of tasks.

    A sample holds until the next one of its series; several series are averaged. Samples of 0 MHz
    or above MOST_MHZ are ignored, since a computing core has a plausible frequency.
    """
    group = records.strings.find(AI_CORE_FREQUENCY)
    start_ns, end_ns = records.tasks.start_ns[rows], records.tasks.end_ns[rows]
    all_ns = int((end_ns - start_ns).sum())
    if group is None or not all_ns:
        return None
    means = []
    value = records.samples.value
    plausible = (value > 0) & (value <= MOST_MHZ)
    wanted = np.flatnonzero(records.series.group == group)
    for _, of_series in rows_by_value(records.samples.series, wanted):
        at = of_series[plausible[of_series]]
        if len(at):
            held = _HeldValues.of(records.samples.take(at))
            means.append(float((held.sum(end_ns) - held.sum(start_ns)).sum()) / all_ns)
    return sum(means) / len(means) if means else None


@dataclass(frozen=True)
class _HeldValues:
    """Samples (n,) in order of time, and the integral of value over ns from the first one to each.

    The integrals are exact: whole MHz times the ns of a capture stay below 2^53.
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

    def sum(self, times_ns: Int64) -> Float64:
        """Return the integral of value over ns up to each timestamp.

        Before the first sample its value holds.
        """
        at = np.maximum(np.searchsorted(self.time_ns, times_ns, side="right") - 1, 0)
        return self.before[at] + self.value[at] * (times_ns - self.time_ns[at])


NOTABLE = 0.02
"""Minimum excess over the peers' computing time for a cause to be searched, as a share of it."""
EXPLAINED = 0.5
"""Minimum share of the excess that a lower frequency must explain to be the cause."""
NOTABLE_FREQUENCY = 0.01
"""Minimum difference from the peers' frequency, as a share of the rank's own."""


class ComputingCause(enum.IntEnum):
    """Cause of a rank computing longer than others."""

    NONE = 0
    """It does not compute longer, or there are no others."""
    FREQUENCY = 1
    """The same work at a lower frequency of the AI Core."""
    OPERATORS = 2
    """The same work, but some operators take longer."""
    SHAPES = 3
    """The same operators equally often, on other shapes."""
    WORK = 4
    """More operators, or others."""


class ComputingCauses(ColumnTable):
    """Comparison of each rank with its peers, one row per rank.

    Peers are ranks that do the same work; if there are none, ranks that run the same operators
    equally often; else all others. All times and counts are means per step. type: operator with the
    largest excess, a code of `ComputingFigures.strings`; type_ns, peer_type_ns, count, peer_count:
    its time and number, and those of the peers.
    """

    cause: Int64 = column(np.int64, ComputingCause.NONE)
    peers: Int64 = column(np.int64, 0)
    same_work: Int64 = column(np.int64, 0)
    """1 if the peers do the same work, else 0."""
    computing_ns: Int64 = column(np.int64)
    peer_ns: Int64 = column(np.int64, 0)
    """Median of the peers."""
    frequency_mhz: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    peer_frequency_mhz: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    type: Codes = column(np.int32, NO_NAME)
    type_ns: Int64 = column(np.int64, 0)
    peer_type_ns: Int64 = column(np.int64, 0)
    count: Float64 = column(np.float64, 0)
    peer_count: Float64 = column(np.float64, 0)


@dataclass(frozen=True)
class ComputingFigures:
    """Causes of ranks computing longer than others; codes are positions in `strings`."""

    strings: tuple[str, ...]
    causes: ComputingCauses


def peer_classes(works: Sequence[RankWork]) -> Int64:
    """Return a number for each rank, (ranks,), shared by ranks with the same work.

    A rank whose work differs from step to step, or that computes nothing, is alone in its class.
    """
    return _classes([work.digest for work in works])


def _classes(digests: Sequence[int]) -> Int64:
    values = np.array(digests, np.uint64)
    _, which = distinct_values(values.view(np.int64))
    alone = np.flatnonzero(values == NO_WORK)
    classes: Int64 = which.astype(np.int64)
    classes[alone] = len(values) + np.arange(len(alone))
    return classes


def computing_causes(works: Sequence[RankWork]) -> ComputingFigures:
    """Compare each rank with its peers.

    works: the work of each rank.
    """
    strings = StringPool()
    measured = _Measured.of(works, strings)
    levels = [
        (ComputingCause.OPERATORS, peer_classes(works)),
        (ComputingCause.SHAPES, _classes([work.types_digest for work in works])),
        (ComputingCause.WORK, np.zeros(len(works), np.int64)),
    ]
    remaining = computes = np.flatnonzero(measured.mean_ns > 0)
    rows = [
        {"computing_ns": own_ns, "frequency_mhz": own_mhz}
        for own_ns, own_mhz in zip(measured.mean_ns, measured.frequency_mhz, strict=True)
    ]
    for otherwise, classes in levels:
        members = computes[np.argsort(classes[computes], kind="stable")]
        bounds = np.flatnonzero(np.diff(classes[members])) + 1
        for ranks in np.split(members, bounds):
            uncompared = ranks[np.isin(ranks, remaining)]
            if len(ranks) < 2 or not len(uncompared):
                continue
            middle = measured.median(ranks)
            for rank in uncompared.tolist():
                # With two ranks each is the other's peer; their median would lie between them.
                peers = middle if len(ranks) > 2 else measured.median(ranks[ranks != rank])
                rows[rank] |= _compared(measured, rank, peers, otherwise)
                rows[rank]["peers"] = len(ranks) - 1
            remaining = np.setdiff1d(remaining, uncompared)
    tables = [ComputingCauses.of(1, {name: [value] for name, value in row.items()}) for row in rows]
    return ComputingFigures(tuple(strings), ComputingCauses.concat(tables))


@dataclass(frozen=True)
class _Measured:
    """Work of each rank per step.

    mean_ns, frequency_mhz: (ranks,). type_ns, count: (ranks, types), types in order of their codes.
    """

    mean_ns: Int64
    frequency_mhz: Float64
    type_ns: Int64
    count: Float64

    @classmethod
    def of(cls, works: Sequence[RankWork], strings: StringPool) -> _Measured:
        codes = [strings.codes(work.strings) for work in works]
        mean_ns, frequency_mhz = np.zeros(len(works), np.int64), np.zeros(len(works))
        type_ns = np.zeros((len(works), len(strings)), np.int64)
        count = np.zeros((len(works), len(strings)))
        for rank, (work, code) in enumerate(zip(works, codes, strict=True)):
            steps, mhz = max(work.steps, 1), work.frequency_mhz
            mean_ns[rank] = (work.computing_ns + steps // 2) // steps if work.steps else 0
            frequency_mhz[rank] = FLOAT_NOT_GIVEN if mhz is None else mhz
            type_ns[rank, code[work.times.type]] = (work.times.total_ns + steps // 2) // steps
            count[rank, code[work.times.type]] = work.times.count / steps
        return cls(mean_ns, frequency_mhz, type_ns, count)

    def median(self, ranks: Rows) -> _Measured:
        """Return the medians of at least one rank, in the form of a single rank."""
        recorded = self.frequency_mhz[ranks][~np.isnan(self.frequency_mhz[ranks])]
        return _Measured(
            np.array([np.median(self.mean_ns[ranks])]).astype(np.int64),
            np.array([np.median(recorded) if len(recorded) else FLOAT_NOT_GIVEN]),
            np.median(self.type_ns[ranks], axis=0, keepdims=True).astype(np.int64),
            np.median(self.count[ranks], axis=0, keepdims=True),
        )


def _compared(
    measured: _Measured, rank: int, peers: _Measured, otherwise: ComputingCause
) -> dict[str, float]:
    """Return the columns that compare a rank with the median of its peers.

    otherwise: the cause if the rank is slower and its frequency does not explain it.
    """
    own_ns, peer_ns = int(measured.mean_ns[rank]), int(peers.mean_ns[0])
    peer_mhz = float(peers.frequency_mhz[0])
    same = otherwise is ComputingCause.OPERATORS
    cause = ComputingCause.NONE
    if own_ns > peer_ns * (1 + NOTABLE):
        cause = otherwise
        # NaN if not recorded, so that no comparison holds.
        slower = peer_mhz / float(measured.frequency_mhz[rank]) - 1
        longer = own_ns / peer_ns - 1
        if same and slower > NOTABLE_FREQUENCY and slower > EXPLAINED * longer:
            cause = ComputingCause.FREQUENCY
    at = int(np.argmax(measured.type_ns[rank] - peers.type_ns[0]))
    return {
        "cause": cause,
        "same_work": same,
        "peer_ns": peer_ns,
        "peer_frequency_mhz": peer_mhz,
        "type": at,
        "type_ns": int(measured.type_ns[rank, at]),
        "peer_type_ns": int(peers.type_ns[0, at]),
        "count": float(measured.count[rank, at]),
        "peer_count": float(peers.count[0, at]),
    }
