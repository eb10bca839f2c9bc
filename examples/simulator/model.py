"""One run as every Ascend profiler sees it: tasks, calls and samples in int ns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from simulator.truth import Truth

NO_ID = 4_294_967_295
"""What profilers write for "no model", "no context" and "no remote rank"."""

MIB = 1024 * 1024
MICROSECOND_NS = 1_000
MILLISECOND_NS = 1_000_000

WALL_START_NS = 1_736_424_000_123_000_000
"""2025-01-09 12:00:00.123 UTC: every time in every file derives from this constant."""

MONOTONIC_START_NS = 56_635_864_652_493
"""What CLOCK_MONOTONIC_RAW of the host showed at WALL_START_NS."""

WALL_MINUS_MONOTONIC_NS = WALL_START_NS - MONOTONIC_START_NS

COMPUTE_STREAM = 2
SIDE_STREAM = 3
COMMUNICATION_STREAM = 4


@dataclass(frozen=True)
class Kernel:
    """One operator of the network; its name differs by framework, its work does not."""

    name: str
    scope: str
    op_type: str
    core: str
    blocks: int
    input_shapes: str
    input_types: str
    input_formats: str
    output_shapes: str
    output_types: str
    output_formats: str


@dataclass(frozen=True)
class Transfer:
    """What one HCCL task does on its plane."""

    plane: int
    kind: str
    source_rank: int
    target_rank: int
    transport: str
    link: str
    data_type: str
    size_bytes: int
    notify_id: int
    estimate_us: float


@dataclass(frozen=True)
class Task:
    """One device task. A plane task and its hardware twin are the same record, rendered twice."""

    kind: str
    stream: int
    task_id: int
    context_id: int
    start_ns: int
    end_ns: int
    connection_id: int
    kernel: Kernel | None = None
    transfer: Transfer | None = None

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Collective:
    """One HCCL operator: exactly the span of its plane tasks."""

    name: str
    scope: str
    group: str
    op_type: str
    algorithm: str
    data_type: str
    count: int
    connection_id: int
    tasks: tuple[Task, ...]

    @property
    def start_ns(self) -> int:
        return min(task.start_ns for task in self.tasks)

    @property
    def end_ns(self) -> int:
        return max(task.end_ns for task in self.tasks)

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(frozen=True)
class Iteration:
    """One execution of one graph inside a step, with the markers of the device step trace."""

    graph: int
    number: int
    start_ns: int
    next_data_ns: tuple[int, int]
    forward_start_ns: int
    backward_end_ns: int
    end_ns: int
    host_start_ns: int
    host_end_ns: int
    local_tasks: tuple[Task, ...]
    collectives: tuple[Collective, ...]
    parents: tuple[Task, ...]
    """FFTS+ graph tasks covering their sub-tasks: only the databases keep them."""

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every hardware task in order of start, twins of plane tasks included."""
        planes = (task for collective in self.collectives for task in collective.tasks)
        return tuple(sorted((*self.local_tasks, *planes), key=_position))

    @property
    def kernels(self) -> tuple[tuple[Task, Kernel], ...]:
        """The tasks that count as computing, each with its operator."""
        return tuple((task, task.kernel) for task in self.tasks if task.kernel is not None)


@dataclass(frozen=True)
class CannCall:
    """One host call of the CANN stack; `connection_id` ties it to what it launched."""

    level: str
    mode: str
    name: str
    item: str
    thread: int
    start_ns: int
    end_ns: int
    connection_id: int


@dataclass(frozen=True)
class FrameworkCall:
    """One call of the framework: a Python frame, an operator or a task queue operation."""

    category: str
    name: str
    thread: int
    start_ns: int
    end_ns: int
    sequence: int = -1
    forward_thread: int = 0
    shapes: str = ""
    types: str = ""
    call_stack: tuple[str, ...] = ()
    python_id: int | None = None
    parent_id: int | None = None
    module_id: int | None = None
    correlation_id: int | None = None
    launches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Step:
    """One training step: its window on the host and what ran on the device for it."""

    id: int
    host_start_ns: int
    host_end_ns: int
    iterations: tuple[Iteration, ...]
    cann_calls: tuple[CannCall, ...]
    framework_calls: tuple[FrameworkCall, ...]

    @property
    def device_start_ns(self) -> int:
        return min(iteration.tasks[0].start_ns for iteration in self.iterations)

    @property
    def device_end_ns(self) -> int:
        return max(task.end_ns for iteration in self.iterations for task in iteration.tasks)


@dataclass(frozen=True)
class Counter:
    """Samples of one quantity: bytes, bytes per second, MHz or thousandths of a percent."""

    family: str
    series: str
    unit: int
    samples: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class RankRun:
    """Everything one rank recorded."""

    rank: int
    device: int
    os_pid: int
    start_ns: int
    end_ns: int
    steps: tuple[Step, ...]
    switches: tuple[Task, ...]
    """PROFILING_ENABLE and PROFILING_DISABLE: device tasks that belong to no step."""
    counters: tuple[Counter, ...]

    @property
    def main_thread(self) -> int:
        return self.os_pid

    @property
    def queue_thread(self) -> int:
        return self.os_pid + 11

    @property
    def backward_thread(self) -> int:
        return self.os_pid + 25

    @property
    def threads(self) -> tuple[int, int, int]:
        return (self.main_thread, self.backward_thread, self.queue_thread)

    @property
    def iterations(self) -> Iterator[Iteration]:
        return (iteration for step in self.steps for iteration in step.iterations)

    @property
    def framework_calls(self) -> Iterator[FrameworkCall]:
        return (call for step in self.steps for call in step.framework_calls)

    @property
    def cann_calls(self) -> Iterator[CannCall]:
        return (call for step in self.steps for call in step.cann_calls)


@dataclass(frozen=True)
class Run:
    """One run of all ranks, with the parameters that made it."""

    ranks: tuple[RankRun, ...]
    seed: int
    graphs: tuple[int, ...]
    ops_per_step: int
    planes: int
    monotonic: bool
    truth: Truth

    def rank(self, rank: int) -> RankRun:
        for one in self.ranks:
            if one.rank == rank:
                return one
        raise LookupError(f"no rank {rank} in this run")

    def wall_ns(self, time_ns: int) -> int:
        """A time of this run as Unix time."""
        return time_ns + WALL_MINUS_MONOTONIC_NS if self.monotonic else time_ns

    def monotonic_ns(self, time_ns: int) -> int:
        """A time of this run on the host's CLOCK_MONOTONIC_RAW."""
        return time_ns if self.monotonic else time_ns - WALL_MINUS_MONOTONIC_NS


def _position(task: Task) -> tuple[int, int, int, int]:
    return (task.start_ns, task.stream, task.task_id, task.context_id)
