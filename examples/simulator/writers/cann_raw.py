"""The raw data of devices, as CANN leaves it before msprof exports it."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from simulator.model import (
    COMMUNICATION_STREAM,
    COMPUTE_STREAM,
    MICROSECOND_NS,
    NO_ID,
    Iteration,
    RankRun,
    Run,
    Task,
)
from simulator.writers.events import write_json
from simulator.writers.session import session_name, write_device_info, write_host_info

MAGIC = 0x6BD3
STARS_PLATFORM, HWTS_PLATFORM, V6_PLATFORM = "5", "1", "15"
STARS_TYPES = {
    "AI_CORE": 0,
    "AI_CPU": 1,
    "AI_VECTOR_CORE": 2,
    "PROFILING_ENABLE": 3,
    "PROFILING_DISABLE": 3,
    "EVENT_RECORD": 4,
    "EVENT_WAIT": 5,
    "MEMCPY_ASYNC": 11,
    "MIX_AIV": 0,
    "Memcpy": 11,
    "Reduce_Inline": 11,
    "Notify_Record": 6,
    "Notify_Wait": 7,
}
HWTS_TYPES = STARS_TYPES | {"MEMCPY_ASYNC": 9, "Memcpy": 9, "Reduce_Inline": 9}
SUBTASK_TYPES = {
    "MIX_AIV": 7,
    "Memcpy": 8,
    "Reduce_Inline": 8,
    "Notify_Record": 4,
    "Notify_Wait": 3,
}
PLANE_TASK_IDS = 20_000
"""Where there are no sub-tasks each task on a plane has an id of its own, from here on."""


@dataclass(frozen=True)
class Counter:
    """The counter of a device: its frequency in MHz, and one moment on it and on the host."""

    megahertz: str
    value: int
    host_ns: int

    def ticks(self, monotonic_ns: int) -> int:
        """What the counter shows next to a moment."""
        return self.value + round((monotonic_ns - self.host_ns) * Fraction(self.megahertz) / 1000)


@dataclass(frozen=True)
class RawTask:
    """A task as a device logs it; times of the run."""

    stream: int
    task: int
    context: int
    kind: str
    start_ns: int
    end_ns: int


def counter_of(run: Run, rank: RankRun, megahertz: str) -> Counter:
    """The counter that a rank's raw data is written with."""
    # Simulated times are whole ticks of 10 ns on the monotonic clock.
    return Counter(megahertz, 1_833_256_145_654, run.monotonic_ns(rank.start_ns) // 10 * 10)


def raw_tasks(rank: RankRun, *, sub_tasks: bool) -> list[RawTask]:
    """The tasks of a rank without FFTS+ parents, in order of start.

    sub_tasks: whether tasks on planes are sub-tasks of one task, or tasks by themselves.
    """
    tasks = [*rank.switches, *(task for one in rank.iterations for task in one.tasks)]
    made = []
    for number, task in enumerate(tasks):
        ids = task.task_id, task.context_id
        if not sub_tasks:
            ids = PLANE_TASK_IDS + number if task.transfer else task.task_id, NO_ID
        made.append(RawTask(task.stream, *ids, _kind(task), task.start_ns, task.end_ns))
    return sorted(made, key=lambda task: (task.start_ns, task.stream, task.task, task.context))


def _kind(task: Task) -> str:
    return task.kernel.core if task.kernel else task.kind


def write_raw(
    run: Run,
    directory: str | Path,
    *,
    log: str = "stars",
    megahertz: str = "100",
    slices: int = 3,
    distributed: bool = True,
) -> list[Path]:
    """Write one `PROF_*` directory per rank, with nothing exported, and return them.

    Args:
        log: "stars" (910B), "hwts" (910A) or "v6", whose records are laid out in a newer way.
        slices: how many files each log is cut into, wherever that is in a record.
        distributed: whether the captures have ranks.
    """
    return [
        _write_session(run, rank, Path(directory), log, megahertz, slices, distributed)
        for rank in run.ranks
    ]


def _write_session(
    run: Run,
    rank: RankRun,
    directory: Path,
    log: str,
    megahertz: str,
    slices: int,
    distributed: bool,
) -> Path:
    session = directory / session_name(run, rank)
    write_host_info(run, rank, session, distributed=distributed)
    write_device_info(run, rank, session, distributed=distributed)
    device = session / f"device_{rank.device}"
    platform = {"stars": STARS_PLATFORM, "hwts": HWTS_PLATFORM, "v6": V6_PLATFORM}[log]
    change_device_info(device / f"info.json.{rank.device}", megahertz, platform)
    counter = counter_of(run, rank, megahertz)
    _write_clocks(device, rank.device, counter)
    name, records = {
        "stars": ("stars_soc", _stars_records),
        "hwts": ("hwts", _hwts_records),
        "v6": ("stars_soc", _v6_records),
    }[log]
    data = device / "data"
    data.mkdir()
    _write_slices(data, f"{name}.data.{rank.device}", records(run, rank, counter), slices)
    track = _track_records(run, rank, counter, is_v6=log == "v6")
    _write_slices(data, f"ts_track.data.{rank.device}", track, slices)
    return session


def change_device_info(path: Path, megahertz: str, platform: str) -> None:
    """Put a frequency and a chip into the info.json of a device."""
    document = json.loads(path.read_text(encoding="utf-8"))
    document["DeviceInfo"][0]["hwts_frequency"] = megahertz
    write_json(path, document | {"platform_version": platform})


def _write_clocks(device: Path, number: int, counter: Counter) -> None:
    host = f"clock_monotonic_raw: {counter.host_ns}\ncntvct: 3666503140109\ncntvct_diff: 0\n"
    texts = {
        "host_start.log": f"[Device{number}]\n{host}",
        "dev_start.log": f"clock_monotonic_raw: 43917000000\ncntvct: {counter.value}\n",
    }
    for name, text in texts.items():
        (device / f"{name}.{number}").write_text(text, encoding="utf-8", newline="")


def _write_slices(data: Path, name: str, records: Iterable[bytes], slices: int) -> None:
    """Cut a log anywhere, as a full buffer does; each slice has its `.done` marker."""
    log = b"".join(records)
    length = -(-len(log) // slices)
    for number in range(slices):
        path = data / f"{name}.slice_{number}"
        path.write_bytes(log[number * length : (number + 1) * length])
        done = path.with_name(f"{path.name}.done")
        done.write_text(f"filesize:{path.stat().st_size}\n", encoding="utf-8", newline="")


Moment = tuple[int, bool, RawTask]
"""When, whether that is an end, and of which task."""


def _moments(run: Run, tasks: Iterable[RawTask], counter: Counter) -> Iterator[Moment]:
    """Starts and ends in the order in which they are logged, in ticks."""
    both = (
        (counter.ticks(run.monotonic_ns(time_ns)), is_end, task)
        for task in tasks
        for is_end, time_ns in ((False, task.start_ns), (True, task.end_ns))
    )
    return iter(sorted(both, key=lambda moment: moment[0]))


def _stars_records(run: Run, rank: RankRun, counter: Counter) -> Iterator[bytes]:
    """64 bytes each: ACSQ tasks, FFTS+ sub-tasks, and transfers of the chip among them."""
    parents = (
        RawTask(one.stream, one.task_id, NO_ID, "AI_CORE", one.start_ns, one.end_ns)
        for iteration in rank.iterations
        for one in iteration.parents
    )
    tasks = [*raw_tasks(rank, sub_tasks=True), *parents]
    for number, (ticks, is_end, task) in enumerate(_moments(run, tasks, counter)):
        yield stars_record(ticks, is_end, task, number)
        if number % 50 == 0:
            head = 0b011011 | (number & 15) << 6
            yield struct.pack("<4HQ11L4x", head, MAGIC, 0, 0, ticks, *range(11))


def stars_record(ticks: int, is_end: bool, task: RawTask, number: int = 0) -> bytes:
    """The start or end of a task or sub-task in `stars_soc.data`."""
    count = (number & 15) << 6
    ids = (MAGIC, task.stream, task.task, ticks)
    if task.context == NO_ID:
        head = is_end | count | STARS_TYPES[task.kind] << 10
        return struct.pack("<4HQHH11L", head, *ids, 0, 1 << 6 | 3, *[0] * 11)
    head = 0b100010 | is_end | count
    kind = 0xA500 | SUBTASK_TYPES[task.kind]
    return struct.pack("<4HQ4H10L", head, *ids, kind, task.context, 4 << 13, 0, *[0] * 10)


def _hwts_records(run: Run, rank: RankRun, counter: Counter) -> Iterator[bytes]:
    """64 bytes each: tasks, and blocks of tasks among them."""
    tasks = raw_tasks(rank, sub_tasks=False)
    for number, (ticks, is_end, task) in enumerate(_moments(run, tasks, counter)):
        yield hwts_record(ticks, int(is_end), task, number)
        if number % 50 == 0:
            yield hwts_record(ticks, 2, task, number)


def hwts_record(ticks: int, function: int, task: RawTask, number: int = 0) -> bytes:
    """A record of `hwts.data`: function 0 is the start of a task, 1 its end."""
    head = function | (number & 15) << 4
    kind = HWTS_TYPES[task.kind]
    # Of the stream only the lower bits count.
    ids = (0, task.task, ticks, task.stream | 2048)
    return struct.pack("<BBHHHQ12I", head, kind, MAGIC, *ids, *[0] * 11)


def _v6_records(run: Run, rank: RankRun, counter: Counter) -> Iterator[bytes]:
    """32 bytes each, with one id of 32 bits."""
    tasks = v6_tasks(rank)
    for number, (ticks, is_end, task) in enumerate(_moments(run, tasks, counter)):
        head = is_end | (number & 15) << 6 | (0 if task.kind == "AI_CORE" else 3) << 10
        low, high = task.task & 0xFFFF, task.task >> 16
        yield struct.pack("<4HQHH3L", head, MAGIC, low, high, ticks, 0, 0, 0, 0, 0)


def v6_tasks(rank: RankRun) -> list[RawTask]:
    """The tasks of a rank with ids beyond 16 bits, of which records of chip V6 tell no stream."""
    return [
        RawTask(
            -1,
            65_530 + number,
            NO_ID,
            "AI_CORE" if task.kind == "AI_CORE" else "PLACE_HOLDER",
            task.start_ns,
            task.end_ns,
        )
        for number, task in enumerate(raw_tasks(rank, sub_tasks=False))
    ]


def _track_records(run: Run, rank: RankRun, counter: Counter, *, is_v6: bool) -> Iterator[bytes]:
    """40 bytes each: the tags of every iteration, and types of tasks among them."""
    tags = sorted(
        (time_ns, one.graph, one.number, stream, tag)
        for one in rank.iterations
        for time_ns, stream, tag in _tags_of(one)
    )
    for number, (time_ns, graph, index, stream, tag) in enumerate(tags):
        ticks = counter.ticks(run.monotonic_ns(time_ns))
        yield track_record(ticks, index, graph, stream, tag, is_v6=is_v6)
        if number % 10 == 0:
            yield struct.pack("<BBHLQHHHBBQQ", 0, 12, 40, 0, ticks, stream, 7, 0, 0, 0, 0, 0)


def _tags_of(one: Iteration) -> Iterator[tuple[int, int, int]]:
    """When, on which stream, and what: the marks of one iteration."""
    yield one.start_ns, COMPUTE_STREAM, 0
    yield one.next_data_ns[0], COMPUTE_STREAM, 20_000
    yield one.next_data_ns[1], COMPUTE_STREAM, 20_001
    yield one.forward_start_ns, COMPUTE_STREAM, 2
    yield one.backward_end_ns, COMPUTE_STREAM, 3
    yield one.end_ns, COMPUTE_STREAM, 4
    yield one.end_ns + MICROSECOND_NS, COMPUTE_STREAM, 1
    for index, reduce in enumerate(one.collectives):
        yield reduce.start_ns, COMMUNICATION_STREAM, 10_000 + 2 * index
        yield reduce.end_ns, COMMUNICATION_STREAM, 10_001 + 2 * index


def track_record(
    ticks: int, index: int, graph: int, stream: int, tag: int, *, is_v6: bool = False
) -> bytes:
    """A tag of the step trace in `ts_track.data`."""
    head = (0, 10, 40, 0, ticks, index, graph)
    if is_v6:
        return struct.pack("<BBHLQQQHHI", *head, tag, stream, 70_000)
    return struct.pack("<BBHLQQQHHHH", *head, stream, 7, tag, 0)
