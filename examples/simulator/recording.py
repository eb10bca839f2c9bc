"""The clocks, ids and records of one simulated rank: its host threads and device streams."""

from __future__ import annotations

import random

from simulator.model import (
    COMMUNICATION_STREAM,
    COMPUTE_STREAM,
    MICROSECOND_NS,
    NO_ID,
    SIDE_STREAM,
    CannCall,
    FrameworkCall,
    Kernel,
    Task,
)

TICK_NS = 10
"""The device counter runs at 100 MHz, so every simulated time is a whole number of ticks."""


def whole_ticks(duration_ns: float) -> int:
    """A duration as the device counts it."""
    return TICK_NS * round(duration_ns / TICK_NS)


class Noise:
    """Seeded durations that vary a little, always in whole ticks."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)

    def about(self, duration_ns: int) -> int:
        """A duration within 3 % of `duration_ns`, at least one tick."""
        ticks = max(1, duration_ns // TICK_NS)
        spread = ticks * 3 // 100
        return TICK_NS * max(1, self._random.randint(ticks - spread, ticks + spread))

    def between(self, low_ns: int, high_ns: int) -> int:
        return self._random.randrange(low_ns, high_ns + TICK_NS, TICK_NS)


class Host:
    """The threads of one process: the clock of the main thread and the calls of all of them."""

    def __init__(self, os_pid: int, start_ns: int) -> None:
        self.main_thread = os_pid
        self.queue_thread = os_pid + 11
        self.backward_thread = os_pid + 25
        self.now_ns = start_ns
        self.queue_free_ns = start_ns
        self.cann_calls: list[CannCall] = []
        self.framework_calls: list[FrameworkCall] = []
        self._connection_id = 935
        self._correlation_id = 8_225
        self._python_id = 0

    def clear(self) -> None:
        self.cann_calls = []
        self.framework_calls = []

    def connection_id(self) -> int:
        self._connection_id += 1
        return self._connection_id

    def python_id(self) -> int:
        self._python_id += 1
        return self._python_id

    def cann(
        self, level: str, mode: str, name: str, item: str, thread: int, start_ns: int, end_ns: int
    ) -> int:
        """Record a CANN call and return the connection id of what it launches."""
        connection_id = self.connection_id()
        self.cann_calls.append(
            CannCall(level, mode, name, item, thread, start_ns, end_ns, connection_id)
        )
        return connection_id

    def runtime_call(self, name: str, duration_ns: int = 12 * 100) -> int:
        """Call the runtime on the main thread, now."""
        start_ns = self.now_ns
        self.now_ns += duration_ns + MICROSECOND_NS
        return self.cann(
            "acl", "ACL_RTS", name, "0", self.main_thread, start_ns, start_ns + duration_ns
        )

    def record(self, call: FrameworkCall) -> None:
        self.framework_calls.append(call)

    def enqueue(self, thread: int, start_ns: int, duration_ns: int) -> int:
        self._correlation_id += 1
        self.record(
            FrameworkCall(
                "enqueue",
                "Enqueue",
                thread,
                start_ns,
                start_ns + duration_ns,
                correlation_id=self._correlation_id,
            )
        )
        self.queue_free_ns = max(self.queue_free_ns, start_ns + duration_ns + 3 * MICROSECOND_NS)
        return self._correlation_id

    def dequeue(self, name: str, start_ns: int, end_ns: int, correlation_id: int) -> None:
        self.record(
            FrameworkCall(
                "dequeue",
                f"Dequeue@{name}",
                self.queue_thread,
                start_ns,
                end_ns,
                correlation_id=correlation_id,
            )
        )
        self.queue_free_ns = end_ns + 3 * MICROSECOND_NS


class Device:
    """The streams of one device: when each is free and the tasks of the current iteration."""

    def __init__(self, start_ns: int) -> None:
        self.free_ns = dict.fromkeys((COMPUTE_STREAM, SIDE_STREAM, COMMUNICATION_STREAM), start_ns)
        self.tasks: list[Task] = []
        self.parents: list[Task] = []
        self._starts_ns: set[int] = set()
        self._task_id = {COMPUTE_STREAM: 11_048, SIDE_STREAM: 300, COMMUNICATION_STREAM: 805}

    def clear(self) -> None:
        self.tasks = []
        self.parents = []

    def task_id(self, stream: int) -> int:
        self._task_id[stream] += 1
        return self._task_id[stream]

    def claim(self, start_ns: int) -> int:
        """The first start from `start_ns` on that no launched task has: flows are named by it."""
        while start_ns in self._starts_ns:
            start_ns += TICK_NS
        self._starts_ns.add(start_ns)
        return start_ns

    def hold(self, stream: int, until_ns: int) -> None:
        self.free_ns[stream] = max(self.free_ns[stream], until_ns)

    def add(
        self,
        kind: str,
        stream: int,
        start_ns: int,
        end_ns: int,
        connection_id: int,
        kernel: Kernel | None = None,
        context_id: int = NO_ID,
    ) -> Task:
        task_id = self.task_id(stream)
        task = Task(
            kind, stream, task_id, context_id, start_ns, end_ns, connection_id, kernel=kernel
        )
        self.tasks.append(task)
        self.hold(stream, end_ns)
        return task

    def add_parent(self, child: Task, start_ns: int, end_ns: int) -> None:
        """Cover FFTS+ sub-tasks with the graph task that holds them."""
        covering = Task(
            kind="AI_CORE" if child.transfer else child.kind,
            stream=child.stream,
            task_id=child.task_id,
            context_id=NO_ID,
            start_ns=start_ns - 144 * TICK_NS,
            end_ns=end_ns + 46 * TICK_NS,
            connection_id=child.connection_id,
        )
        self.parents.append(covering)
        self.hold(child.stream, covering.end_ns)
