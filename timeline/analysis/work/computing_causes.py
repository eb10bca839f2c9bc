"""Why a rank computes longer than its peers: its frequency, some operators, or other work."""

from __future__ import annotations

import enum
from collections.abc import Sequence

import numpy as np

from timeline.analysis.work.computed_work import NO_WORK, RankWork
from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.distinct import distinct_values
from timeline.columns.strings import NO_NAME, StringPool
from timeline.frozen import dataclass
from timeline.records.not_given import FLOAT_NOT_GIVEN

__all__ = [
    "ComputingCause",
    "ComputingCauses",
    "ComputingFigures",
    "computing_causes",
    "peer_classes",
]

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

    cause: Int64 = column(np.int64)
    peers: Int64 = column(np.int64)
    same_work: Int64 = column(np.int64)
    """1 where the peers do the same work, 0 where they are others."""
    computing_ns: Int64 = column(np.int64)
    peer_ns: Int64 = column(np.int64)
    """The median of the peers."""
    frequency_mhz: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    peer_frequency_mhz: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    type: Codes = column(np.int32, NO_NAME)
    type_ns: Int64 = column(np.int64)
    peer_type_ns: Int64 = column(np.int64)
    count: Float64 = column(np.float64)
    peer_count: Float64 = column(np.float64)


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
    everyone = np.zeros(len(works), np.int64)
    levels = [
        (ComputingCause.OPERATORS, peer_classes(works)),
        (ComputingCause.SHAPES, _classes([work.types_digest for work in works])),
        (ComputingCause.WORK, everyone),
    ]
    computes = np.flatnonzero(measured.mean_ns > 0)
    rows = [_row(measured, rank) for rank in range(len(works))]
    waiting = computes
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
                its = middle if len(ranks) > 2 else measured.median(ranks[ranks != rank])
                rows[rank] = _compared(measured, rank, its, len(ranks) - 1, otherwise)
            waiting = np.setdiff1d(waiting, asked)
    return ComputingFigures(tuple(strings), ComputingCauses.concat(rows))


@dataclass(frozen=True)
class _Median:
    """What some ranks compute per step, each value the median of them."""

    mean_ns: int
    frequency_mhz: float
    type_ns: Int64
    count: Float64


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
        type_ns = np.zeros((len(works), len(strings)), np.int64)
        count = np.zeros((len(works), len(strings)))
        for rank, (work, code) in enumerate(zip(works, codes, strict=True)):
            steps = max(work.steps, 1)
            type_ns[rank, code[work.times.type]] = (work.times.total_ns + steps // 2) // steps
            count[rank, code[work.times.type]] = work.times.count / steps
        steps_ns = [
            (work.computing_ns + work.steps // 2) // work.steps if work.steps else 0
            for work in works
        ]
        recorded = [
            FLOAT_NOT_GIVEN if work.frequency_mhz is None else work.frequency_mhz for work in works
        ]
        return cls(np.array(steps_ns, np.int64), np.array(recorded, np.float64), type_ns, count)

    def median(self, ranks: Rows) -> _Median:
        """The medians of some ranks, at least one."""
        recorded = self.frequency_mhz[ranks][~np.isnan(self.frequency_mhz[ranks])]
        return _Median(
            int(np.median(self.mean_ns[ranks])),
            float(np.median(recorded)) if len(recorded) else FLOAT_NOT_GIVEN,
            np.median(self.type_ns[ranks], axis=0).astype(np.int64),
            np.median(self.count[ranks], axis=0),
        )


def _row(measured: _Measured, rank: int, **more: float) -> ComputingCauses:
    """The row of a rank; what is not given is that of one without peers."""
    values: dict[str, float] = {
        "cause": ComputingCause.NONE,
        "peers": 0,
        "same_work": 0,
        "computing_ns": int(measured.mean_ns[rank]),
        "peer_ns": 0,
        "frequency_mhz": float(measured.frequency_mhz[rank]),
        "type_ns": 0,
        "peer_type_ns": 0,
        "count": 0,
        "peer_count": 0,
    }
    return ComputingCauses.of(1, {name: [value] for name, value in (values | more).items()})


def _compared(
    measured: _Measured, rank: int, peers: _Median, count: int, otherwise: ComputingCause
) -> ComputingCauses:
    """A rank compared with the median of its peers; otherwise: the cause if no other is found."""
    own_ns, own_mhz = int(measured.mean_ns[rank]), float(measured.frequency_mhz[rank])
    same = otherwise is ComputingCause.OPERATORS
    cause = ComputingCause.NONE
    if own_ns > peers.mean_ns * (1 + NOTABLE):
        cause = otherwise
        slower = peers.frequency_mhz / own_mhz - 1  # NaN, which exceeds nothing, if not recorded
        longer = own_ns / peers.mean_ns - 1
        if same and slower > NOTABLE_FREQUENCY and slower > EXPLAINED * longer:
            cause = ComputingCause.FREQUENCY
    at = int(np.argmax(measured.type_ns[rank] - peers.type_ns))
    return _row(
        measured,
        rank,
        cause=cause,
        peers=count,
        same_work=same,
        peer_ns=peers.mean_ns,
        peer_frequency_mhz=peers.frequency_mhz,
        type=at,
        type_ns=int(measured.type_ns[rank, at]),
        peer_type_ns=int(peers.type_ns[at]),
        count=float(measured.count[rank, at]),
        peer_count=float(peers.count[at]),
    )
