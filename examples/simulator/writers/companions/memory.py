"""The tables of memory that torch_npu and msprof write beside their timelines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.model import MIB, RankRun, Run
from simulator.writers.events import write_table
from simulator.writers.trace_json.msprof import wall_clock

KIB = 1024
RESERVED_BYTES = 1452 * MIB
HELD_BEFORE_BYTES = 40 * MIB
"""What the framework held before the collection began."""
GRAIN_BYTES = 512
MODULES = {"SLOG": 0, "HCCL": 404 * MIB + 64 * KIB, "RUNTIME": 92 * MIB + 192 * KIB, "ROS": 0}
MEMORY_RECORD = (
    "Component",
    "Timestamp(us)",
    "Total Allocated(MB)",
    "Total Reserved(MB)",
    "Total Active(MB)",
    "Stream Ptr",
    "Device Type",
)
OPERATOR_MEMORY = (
    "Name",
    "Size(KB)",
    "Allocation Time(us)",
    "Release Time(us)",
    "Active Release Time(us)",
    "Duration(us)",
    "Device Type",
)

Samples = list[tuple[int, float]]
"""Time in ns of the run, and bytes."""


@dataclass(frozen=True)
class Allocation:
    """Memory of one operator; without an end it is still held when the collection ends."""

    name: str
    size_bytes: int
    taken_ns: int
    given_back_ns: int | None


def allocations(rank: RankRun) -> list[Allocation]:
    """What the kernels of a rank took: a row of tensors, every fifth of which stays."""
    found = []
    for iteration in rank.iterations:
        for place, (task, kernel) in enumerate(iteration.kernels):
            size_bytes = (kernel.blocks * 37 + place + 1) * GRAIN_BYTES
            end_ns = None if place % 5 == 4 else task.end_ns + 1_730
            found.append(Allocation(kernel.name, size_bytes, task.start_ns - 250, end_ns))
    return found


def allocated(rank: RankRun, before_bytes: int = HELD_BEFORE_BYTES) -> Samples:
    """The bytes that are allocated after each change."""
    changes = []
    for one in allocations(rank):
        changes.append((one.taken_ns, one.size_bytes))
        if one.given_back_ns is not None:
            changes.append((one.given_back_ns, -one.size_bytes))
    totals: dict[int, int] = {}
    held = before_bytes
    for time_ns, change in sorted(changes, key=lambda found: found[0]):
        held += change
        totals[time_ns] = held
    return [(time_ns, float(total)) for time_ns, total in totals.items()]


def application_memory(rank: RankRun) -> Samples:
    """What the device says the process holds; the timeline has it as a counter too."""
    (counter,) = (one for one in rank.counters if (one.family, one.series) == ("NPU MEM", "APP"))
    return [(time_ns, float(value)) for time_ns, value in counter.samples]


def write_memory_tables(run: Run, rank: RankRun, output: Path) -> None:
    """Write memory_record.csv, operator_memory.csv and npu_module_mem.csv as torch_npu does."""
    clock, device = wall_clock(run), f"NPU:{rank.device}"

    def moment(time_ns: int | None) -> str:
        return "" if time_ns is None else f"{clock(time_ns)}\t"

    records: list[Sequence[object]] = [
        ("APP", moment(time_ns), "", value / MIB, "", "", device)
        for time_ns, value in application_memory(rank)
    ]
    for time_ns, value in allocated(rank):
        totals = (value / MIB, RESERVED_BYTES / MIB, value / MIB)
        records.append(("PTA", moment(time_ns), *totals, 897357296, device))
    write_table(output / "memory_record.csv", MEMORY_RECORD, records, "\r\n")
    operators = [
        (
            one.name,
            one.size_bytes / KIB,
            moment(one.taken_ns),
            moment(one.given_back_ns),
            moment(one.given_back_ns),
            "" if one.given_back_ns is None else (one.given_back_ns - one.taken_ns) / 1000,
            device,
        )
        for one in allocations(rank)
    ]
    write_table(output / "operator_memory.csv", OPERATOR_MEMORY, operators, "\r\n")
    modules = [
        (name, moment(time_ns), size_bytes / MIB, device)
        for time_ns, _ in application_memory(rank)
        for name, size_bytes in MODULES.items()
    ]
    header = ("Component", "Timestamp(us)", "Total Reserved(MB)", "Device")
    write_table(output / "npu_module_mem.csv", header, modules, "\n")


def write_msprof_memory_tables(
    run: Run, ranks: Sequence[RankRun], output: Path, exported: str
) -> None:
    """Write the tables of several devices as msprof does: sizes in KB, devices by number."""
    clock = wall_clock(run)
    records = [
        (rank.device, "GE", f"{clock(time_ns)}\t", value / KIB, RESERVED_BYTES / KIB)
        for rank in ranks
        for time_ns, value in allocated(rank)
    ]
    header = (
        "Device_id",
        "Component",
        "Timestamp(us)",
        "Total Allocated(KB)",
        "Total Reserved(KB)",
    )
    write_table(output / f"memory_record_{exported}.csv", header, records, "\n")
    operators = [
        (
            rank.device,
            one.name,
            one.size_bytes / KIB,
            f"{clock(one.taken_ns)}\t",
            "N/A" if one.given_back_ns is None else (one.given_back_ns - one.taken_ns) / 1000,
        )
        for rank in ranks
        for one in allocations(rank)
    ]
    header = ("Device_id", "Name", "Size(KB)", "Allocation Time(us)", "Duration(us)")
    write_table(output / f"operator_memory_{exported}.csv", header, operators, "\n")
