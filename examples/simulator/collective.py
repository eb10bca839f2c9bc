"""The plane tasks that a rank runs for an all-reduce, from when each rank arrives at it."""

from __future__ import annotations

from simulator.model import COMMUNICATION_STREAM, MICROSECOND_NS, NO_ID, Task, Transfer
from simulator.recording import TICK_NS, Noise

GROUP = "10.0.0.1%enp189s0f0_60000_0_1736424000123586"
BUCKET_BYTES = 2_064_384
EXCHANGE_NS = 250 * MICROSECOND_NS
SPREAD_NS = 21 * MICROSECOND_NS
"""How much longer than usual the slowest exchange of a round may take."""
NO_NOTIFY = 18_446_744_073_709_551_615
"""Copies have no notify id: profilers write the largest uint64 for it."""


class _PlaneTasks:
    """Collects tasks that share one FFTS+ task id, each under its own context id."""

    def __init__(self, rank: int, task_id: int, connection_id: int) -> None:
        self._rank = rank
        self._task_id = task_id
        self._connection_id = connection_id
        self.tasks: list[Task] = []

    def notify(self, plane: int, kind: str, peer: int, start_ns: int, end_ns: int) -> None:
        recording = kind == "Notify_Record"
        transfer = Transfer(
            plane=plane,
            kind=kind,
            source_rank=self._rank,
            target_rank=peer,
            transport="SDMA" if recording else "LOCAL",
            link="INVALID_TYPE",
            data_type="INVALID_TYPE",
            size_bytes=0,
            # A notify of another device carries that device in its upper half.
            notify_id=(peer << 32 if recording else 0) + 64 + 4 * plane,
            estimate_us=1 if recording else 0.02,
        )
        self._add(transfer, start_ns, end_ns)

    def move(
        self, plane: int, kind: str, peer: int, start_ns: int, end_ns: int, size_bytes: int
    ) -> None:
        reducing = kind == "Reduce_Inline"
        signal = size_bytes == 4
        reduced_type = "INT32" if signal else "FP32"
        transfer = Transfer(
            plane=plane,
            kind=kind,
            source_rank=self._rank,
            target_rank=peer,
            transport="SDMA",
            link="ON_CHIP" if peer in (self._rank, NO_ID) else "HCCS",
            data_type=reduced_type if reducing else "INVALID_TYPE",
            size_bytes=size_bytes,
            notify_id=0 if reducing else NO_NOTIFY,
            estimate_us=0.6 + size_bytes / 19_300,
        )
        self._add(transfer, start_ns, end_ns)

    def _add(self, transfer: Transfer, start_ns: int, end_ns: int) -> None:
        self.tasks.append(
            Task(
                kind=transfer.kind,
                stream=COMMUNICATION_STREAM,
                task_id=self._task_id,
                context_id=len(self.tasks),
                start_ns=start_ns,
                end_ns=end_ns,
                connection_id=self._connection_id,
                transfer=transfer,
            )
        )


def lay_out_all_reduce(
    noise: Noise,
    rank: int,
    task_id: int,
    connection_id: int,
    start_ns: int,
    meeting_ns: int,
    planes: int,
    world: int,
) -> tuple[Task, ...]:
    """Lay out one rank's share: everyone meets, reduces, meets again and gathers.

    Planes run at the same time on one stream. `meeting_ns` is when the last rank has arrived, so
    the earlier this rank starts, the longer it waits; all ranks end together, within microseconds.
    """
    layout = _PlaneTasks(rank, task_id, connection_id)
    layout.move(0, "Memcpy", rank, start_ns, start_ns + noise.about(3_400), BUCKET_BYTES)
    reduced_ns = meeting_ns + EXCHANGE_NS + SPREAD_NS
    rounds = (
        ("Reduce_Inline", start_ns + 4 * MICROSECOND_NS, meeting_ns),
        ("Memcpy", reduced_ns - 3 * MICROSECOND_NS, reduced_ns),
    )
    for kind, begin_ns, met_ns in rounds:
        for plane in range(1, planes):
            peer = (rank + plane) % world
            record_ns = begin_ns + 28 * TICK_NS * plane
            layout.notify(
                plane, "Notify_Record", peer, record_ns, record_ns + noise.between(680, 760)
            )
            wait_ns = record_ns + 90 * TICK_NS
            waited_ns = max(wait_ns, met_ns)
            layout.notify(plane, "Notify_Wait", peer, wait_ns, waited_ns)
            sent_ns = waited_ns + 60 * TICK_NS
            end_ns = sent_ns + noise.about(EXCHANGE_NS)
            layout.move(plane, kind, peer, sent_ns, end_ns, BUCKET_BYTES)
    gathered_ns = reduced_ns + EXCHANGE_NS + SPREAD_NS + noise.between(0, 2_000)
    copied_ns = gathered_ns + noise.about(3_600)
    layout.move(0, "Memcpy", rank, gathered_ns, copied_ns, BUCKET_BYTES)
    last_ns = copied_ns + 50 * TICK_NS
    layout.move(0, "Reduce_Inline", NO_ID, last_ns, last_ns + 60 * TICK_NS, 4)
    return tuple(layout.tasks)
