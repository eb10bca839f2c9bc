"""What work each rank computes in a step, and why it takes longer than on the peers of a rank."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from timeline.analysis.step_membership import NO_STEP
from timeline.analysis.work.operators import TaskTypes, computing_rows
from timeline.columns.columns import Bool, Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import distinct_values, rows_by_value
from timeline.columns.group_by import GroupRuns, group_by
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import FLOAT_NOT_GIVEN
from timeline.records.tables import AI_CORE_FREQUENCY, CounterSamples, Records, Steps

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


NOTABLE = 0.02
"""By so much of its peers' time a rank must compute longer before a cause is looked for."""
EXPLAINED = 0.5
"""A lower frequency is the cause if it would lengthen all tasks by so much of what is longer."""
NOTABLE_FREQUENCY = 0.01
"""By so much of its peers' frequency that of a rank must be lower."""


class ComputingCause(enum.IntEnum):
    """Why a rank computes longer than others."""

    NONE = 0
    """It does not, or there are no others."""
    FREQUENCY = 1
    """The same work at a lower frequency of the AI Core."""
    OPERATORS = 2
    """The same work, of which some operators take longer."""
    SHAPES = 3
    """The same operators as often, on other shapes."""
    WORK = 4
    """More operators, or others."""


class ComputingCauses(ColumnTable):
    """One row per rank: how long it computes, how long its peers do, and what makes the difference.

    Peers do the same work. Where no rank does, peers are the ranks that run the same operators as
    often, else all others. All times and counts are means per step. type: the operator that makes
    most of the difference, a code of `ComputingFigures.strings`; with its time and number, and
    those of the peers.
    """

    cause: Int64 = column(np.int64, ComputingCause.NONE)
    peers: Int64 = column(np.int64, 0)
    same_work: Int64 = column(np.int64, 0)
    """1 where the peers do the same work, 0 where they are others."""
    computing_ns: Int64 = column(np.int64)
    peer_ns: Int64 = column(np.int64, 0)
    """The median of the peers."""
    frequency_mhz: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    peer_frequency_mhz: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    type: Codes = column(np.int32, NO_NAME)
    type_ns: Int64 = column(np.int64, 0)
    peer_type_ns: Int64 = column(np.int64, 0)
    count: Float64 = column(np.float64, 0)
    peer_count: Float64 = column(np.float64, 0)


@dataclass(frozen=True)
class ComputingFigures:
    """Why ranks compute longer than others; codes are positions in `strings`."""

    strings: tuple[str, ...]
    causes: ComputingCauses


def peer_classes(works: Sequence[RankWork]) -> Int64:
    """The number of the class of ranks with the same work that each rank belongs to, (ranks,).

    A rank whose work differs from step to step, or that computes nothing, is alone in its class.
    """
    return _classes([work.digest for work in works])


def _classes(digests: Sequence[int]) -> Int64:
    known = np.array(digests, np.uint64)
    _, which = distinct_values(known.view(np.int64))
    alone = np.flatnonzero(known == NO_WORK)
    classes: Int64 = which.astype(np.int64)
    classes[alone] = len(known) + np.arange(len(alone))
    return classes


def computing_causes(works: Sequence[RankWork]) -> ComputingFigures:
    """Compare each rank with its peers.

    works: what each rank computes.
    """
    strings = StringPool()
    measured = _Measured.of(works, strings)
    levels = [
        (ComputingCause.OPERATORS, peer_classes(works)),
        (ComputingCause.SHAPES, _classes([work.types_digest for work in works])),
        (ComputingCause.WORK, np.zeros(len(works), np.int64)),
    ]
    waiting = computes = np.flatnonzero(measured.mean_ns > 0)
    rows = [
        {"computing_ns": own_ns, "frequency_mhz": own_mhz}
        for own_ns, own_mhz in zip(measured.mean_ns, measured.frequency_mhz, strict=True)
    ]
    for otherwise, classes in levels:
        members = computes[np.argsort(classes[computes], kind="stable")]
        bounds = np.flatnonzero(np.diff(classes[members])) + 1
        for ranks in np.split(members, bounds):
            asked = ranks[np.isin(ranks, waiting)]
            if len(ranks) < 2 or not len(asked):
                continue
            middle = measured.median(ranks)
            for rank in asked.tolist():
                # The median of two would lie between both, of which each has the other as peer.
                peers = middle if len(ranks) > 2 else measured.median(ranks[ranks != rank])
                rows[rank] |= _compared(measured, rank, peers, otherwise)
                rows[rank]["peers"] = len(ranks) - 1
            waiting = np.setdiff1d(waiting, asked)
    tables = [ComputingCauses.of(1, {name: [value] for name, value in row.items()}) for row in rows]
    return ComputingFigures(tuple(strings), ComputingCauses.concat(tables))


@dataclass(frozen=True)
class _Measured:
    """What each rank computes per step: its time and frequency (ranks,), its types (ranks, types).

    Types are in order of their codes.
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
        """Return the medians of some ranks, at least one, as those of one rank."""
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
    """Return a rank compared with the median of its peers; otherwise: the cause if no other is."""
    own_ns, peer_ns = int(measured.mean_ns[rank]), int(peers.mean_ns[0])
    peer_mhz = float(peers.frequency_mhz[0])
    same = otherwise is ComputingCause.OPERATORS
    cause = ComputingCause.NONE
    if own_ns > peer_ns * (1 + NOTABLE):
        cause = otherwise
        # NaN, which exceeds nothing, if not recorded.
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
