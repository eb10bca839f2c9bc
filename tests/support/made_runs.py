"""Runs of ranks that compute in steps, each with a collective of all, made from what all takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from timeline.analysis.gains.findings import Run
from timeline.analysis.gains.recording import DeviceWork, HostPoints, Recording
from timeline.analysis.gains.replay import RankOps, RecordedRank
from timeline.analysis.path.rank_path import PathKind
from timeline.columns.columns import Int64
from timeline.records.not_given import NO_ID

START_NS = 1_000_000
FIRST_STEP = 7
"""The number of the first step."""


@dataclass(frozen=True)
class MadeRun:
    """What a run takes; `made` plays it.

    computing_ns: (ranks, steps, tasks) of each task. host_ns: (ranks, steps, tasks) what the host
    takes before it launches each, which it begins anew when the collective of the step has ended;
    data_ns: (ranks, steps) how long it waits for data before. transfer_ns: of each collective, and
    how much of it is exposed.
    """

    computing_ns: Int64
    host_ns: Int64
    data_ns: Int64
    transfer_ns: int = 50_000

    @classmethod
    def alike(cls, ranks: int, steps: int, tasks: int = 4, task_ns: int = 200_000) -> MadeRun:
        """Return a run of ranks that all take the same, whose hosts are far ahead."""
        shape = (ranks, steps, tasks)
        return cls(np.full(shape, task_ns), np.full(shape, 1000), np.full((ranks, steps), 1000))

    def computing(self, factor: float, ranks: Sequence[int], steps: Sequence[int]) -> MadeRun:
        """Return the run with some ranks that compute so many times as long in some steps."""
        computing_ns = self.computing_ns.copy()
        computing_ns[np.ix_(ranks, steps)] = (computing_ns[np.ix_(ranks, steps)] * factor).round()
        return replace(self, computing_ns=computing_ns)

    @property
    def total_ns(self) -> int:
        """How long the run takes."""
        return self.made().recording_ns

    def made(self, classes: Sequence[int] | None = None, *, recorded: int | None = None) -> Run:
        """Return the run, of which only the first ranks may be recorded."""
        ranks, steps, tasks = self.computing_ns.shape
        spans = [list[tuple[int, int, int, int]]() for _ in range(ranks)]
        points = [list[tuple[int, int, int]]() for _ in range(ranks)]
        came_ns = list[int]()
        now_ns = START_NS
        bounds_ns = [START_NS]
        for step in range(steps):
            arrivals = list[int]()
            for rank in range(ranks):
                host_ns = now_ns + int(self.data_ns[rank, step])
                points[rank].append((host_ns, step, NO_ID))
                end_ns = now_ns
                for task in range(tasks):
                    host_ns += int(self.host_ns[rank, step, task])
                    points[rank].append((host_ns, step, NO_ID))
                    start_ns = max(end_ns, host_ns)
                    end_ns = start_ns + int(self.computing_ns[rank, step, task])
                    spans[rank].append((start_ns, end_ns, step, len(points[rank]) - 1))
                arrivals.append(end_ns)
            came_ns.append(max(arrivals))
            now_ns = max(arrivals) + self.transfer_ns
            bounds_ns.append(now_ns)
            for rank, arrived_ns in enumerate(arrivals):
                spans[rank].append((arrived_ns, now_ns, step, NO_ID))
                points[rank].append((now_ns, step, len(spans[rank]) - 1))
        kept = ranks if recorded is None else recorded
        return Run(
            [
                RecordedRank(
                    self._recording(rank, spans[rank], points[rank]), self._ops(came_ns, kept)
                )
                for rank in range(kept)
            ],
            [np.arange(steps)] * kept,
            np.arange(FIRST_STEP, FIRST_STEP + steps),
            np.diff(bounds_ns),
            np.zeros(steps, np.bool_),
            START_NS,
            now_ns - START_NS,
            [0] * kept if classes is None else classes,
            [NO_ID] * kept,
            kept == ranks,
        )

    def _recording(
        self, rank: int, spans: list[tuple[int, int, int, int]], points: list[tuple[int, int, int]]
    ) -> Recording:
        tasks = self.computing_ns.shape[2]
        names = ("", "loader", "sync", "AllReduce", *(f"kernel{at}" for at in range(tasks)))
        count = len(spans)
        is_op = np.arange(count) % (tasks + 1) == tasks
        work = DeviceWork.of(
            count,
            {
                "start_ns": [span[0] for span in spans],
                "end_ns": [span[1] for span in spans],
                "kind": np.where(is_op, PathKind.TRANSFER, PathKind.COMPUTING),
                "name": np.where(is_op, 3, 4 + np.arange(count) % (tasks + 1)),
                "type": np.where(is_op, 0, 4 + np.arange(count) % (tasks + 1)),
                "collective": np.where(is_op, np.cumsum(is_op) - 1, NO_ID),
                "before": np.arange(count) - 1,
                "stream_before": np.arange(count) - 1,
                "launch": [span[3] for span in spans],
                "step": [span[2] for span in spans],
            },
        )
        at = np.arange(len(points)) % (tasks + 2)
        host = HostPoints.of(
            len(points),
            {
                "time_ns": [point[0] for point in points],
                "name": np.where(at == 0, 1, np.where(at == tasks + 1, 2, 3 + at)),
                "waits_for": [point[2] for point in points],
                "data_ns": np.where(at == 0, np.repeat(self.data_ns[rank], tasks + 2), 0),
                "step": [point[1] for point in points],
            },
        )
        return Recording(names, work, host)

    def _ops(self, came_ns: list[int], recorded: int) -> RankOps:
        steps, ranks = len(came_ns), len(self.computing_ns)
        whole = recorded == ranks
        return RankOps.of(
            steps,
            {
                "op": np.arange(steps),
                "known": np.full(steps, whole),
                "arrived_ns": came_ns,
                "absent": np.full(steps, NO_ID if whole else ranks - 1),
                "like": np.zeros(steps),
                "group": np.zeros(steps),
                "exposed_ns": np.full(steps, self.transfer_ns),
            },
        )
