"""The plane tasks that a rank runs for an op of HCCL, from when each member arrives at it."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.model import COMMUNICATION_STREAM, MICROSECOND_NS, NO_ID, Task, Transfer
from simulator.recording import TICK_NS, Noise, whole_ticks

BUCKET_BYTES = 2_064_384
EXCHANGE_NS = 250 * MICROSECOND_NS
SPREAD_NS = 21 * MICROSECOND_NS
"""How much longer than usual the slowest exchange of a round may take."""
PAIR_NS = 60 * MICROSECOND_NS
"""What the activations of a micro-batch take from one stage to the next."""
LOCAL_COPY_NS = 4 * MICROSECOND_NS
"""A member first copies its own share; then it notifies its peers, one after the other."""
NOTIFY_EVERY_NS = 28 * TICK_NS
NOTIFY_NS = 72 * TICK_NS
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
    number: int,
    task_id: int,
    connection_id: int,
    starts_ns: Sequence[int],
    planes: int,
    slowdowns: Sequence[float],
) -> tuple[Task, ...]:
    """Lay out one member's share: everyone meets, reduces, meets again and gathers.

    Planes run at the same time on one stream. A plane waits for the notify of its peer, and all
    planes move data when the last member has come, so the earlier this one starts, the longer it
    waits; all members end together, within microseconds.

    Args:
        number: of this member in its group, as tasks name ranks.
        starts_ns: when each member of the group begins.
        slowdowns: for each member, how many times as long its links take.
    """
    layout = _PlaneTasks(number, task_id, connection_id)
    world = len(starts_ns)
    start_ns = starts_ns[number]
    meeting_ns = max(starts_ns) + 7 * MICROSECOND_NS
    layout.move(0, "Memcpy", number, start_ns, start_ns + noise.about(3_400), BUCKET_BYTES)
    round_ns = whole_ticks(EXCHANGE_NS * max(slowdowns)) + SPREAD_NS
    reduced_ns = meeting_ns + round_ns
    rounds = (
        ("Reduce_Inline", start_ns + LOCAL_COPY_NS, meeting_ns),
        ("Memcpy", reduced_ns - 3 * MICROSECOND_NS, reduced_ns),
    )
    for kind, begin_ns, met_ns in rounds:
        for plane in range(1, planes):
            peer = (number + plane) % world
            record_ns = begin_ns + NOTIFY_EVERY_NS * plane
            layout.notify(
                plane, "Notify_Record", peer, record_ns, record_ns + noise.between(680, 760)
            )
            wait_ns = record_ns + 90 * TICK_NS
            notified_ns = met_ns
            if kind == "Reduce_Inline":
                # The peer notifies this member from its own plane for it, if it has that many.
                its_plane = world - plane if world - plane < planes else plane
                its_copy_ns = starts_ns[peer] + LOCAL_COPY_NS
                notified_ns = its_copy_ns + NOTIFY_EVERY_NS * its_plane + NOTIFY_NS
            waited_ns = max(wait_ns + 2 * TICK_NS, notified_ns)
            layout.notify(plane, "Notify_Wait", peer, wait_ns, waited_ns)
            sent_ns = max(waited_ns, met_ns) + 60 * TICK_NS
            slowdown = max(slowdowns[number], slowdowns[peer])
            end_ns = sent_ns + whole_ticks(noise.about(EXCHANGE_NS) * slowdown)
            layout.move(plane, kind, peer, sent_ns, end_ns, BUCKET_BYTES)
    gathered_ns = reduced_ns + round_ns + noise.between(0, 2_000)
    copied_ns = gathered_ns + noise.about(3_600)
    layout.move(0, "Memcpy", number, gathered_ns, copied_ns, BUCKET_BYTES)
    last_ns = copied_ns + 50 * TICK_NS
    layout.move(0, "Reduce_Inline", NO_ID, last_ns, last_ns + 60 * TICK_NS, 4)
    return tuple(layout.tasks)


def lay_out_pair(
    noise: Noise,
    task_ids: tuple[int, int],
    connection_ids: tuple[int, int],
    starts_ns: tuple[int, int],
    numbers: tuple[int, int],
    slowdown: float,
) -> tuple[tuple[Task, ...], tuple[Task, ...]]:
    """Lay out a send and the receive that gets it, each as (sender, receiver).

    The receiver says that it is ready, the sender moves the data and says that they are there.
    """
    (send_ns, receive_ns), (sender, receiver) = starts_ns, numbers
    sends = _PlaneTasks(sender, task_ids[0], connection_ids[0])
    receives = _PlaneTasks(receiver, task_ids[1], connection_ids[1])
    # An op of HCCL is as long as its tasks: this one begins with a signal of four bytes.
    receives.move(0, "Reduce_Inline", NO_ID, receive_ns, receive_ns + 60 * TICK_NS, 4)
    ready_ns = receive_ns + 2 * MICROSECOND_NS
    receives.notify(0, "Notify_Record", sender, ready_ns, ready_ns + NOTIFY_NS)
    begin_ns = send_ns + MICROSECOND_NS
    met_ns = max(begin_ns, ready_ns + NOTIFY_NS)
    sends.notify(0, "Notify_Wait", receiver, send_ns, met_ns)
    moved_ns = met_ns + whole_ticks(noise.about(PAIR_NS) * slowdown)
    sends.move(0, "Memcpy", receiver, met_ns, moved_ns, BUCKET_BYTES)
    sent_ns = moved_ns + NOTIFY_NS
    sends.notify(0, "Notify_Record", receiver, moved_ns, sent_ns)
    receives.notify(0, "Notify_Wait", sender, ready_ns + NOTIFY_NS, sent_ns)
    return tuple(sends.tasks), tuple(receives.tasks)
