"""One rank of a simulated run: what its host launches and its device computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from simulator.counters import sample_counters
from simulator.model import (
    COMMUNICATION_STREAM,
    COMPUTE_STREAM,
    MICROSECOND_NS,
    MILLISECOND_NS,
    NO_ID,
    SIDE_STREAM,
    WALL_MINUS_MONOTONIC_NS,
    Collective,
    FrameworkCall,
    Iteration,
    RankRun,
    Step,
    Task,
)
from simulator.network import Network, Operator
from simulator.parallelism import GROUP, group_number
from simulator.recording import TICK_NS, Device, Host, Noise, whole_ticks
from simulator.scenario import USUAL_MHZ, Scenario
from simulator.truth import Group

DEVICES_PER_HOST = 8
TRAINING_STACK = ("train.py(57): train_step", "train.py(91): main", "train.py(98): <module>")
RUNTIME_KINDS = {
    "AI_CORE": "KERNEL_AICORE",
    "AI_VECTOR_CORE": "KERNEL_AIVEC",
    "MIX_AIV": "KERNEL_AICORE",
    "AI_CPU": "KERNEL_AICPU",
}


@dataclass
class Launched:
    """An op of HCCL that its stream has yet to run, with the calls that launched it."""

    connection_id: int
    wait_connection_id: int
    done_connection_id: int
    launched_ns: int
    recorded_ns: int


class RankSimulation:
    """One rank while it runs."""

    def __init__(
        self,
        rank: int,
        seed: int,
        start_ns: int,
        slower: Mapping[str, float],
        scenario: Scenario,
    ) -> None:
        self.rank = rank
        self.slower = slower
        self.scenario = self.faults = scenario
        self.os_pid = int(f"1234{rank}")
        # The odd 217 ns keep Unix times off whole microseconds; monotonic ones end on a tick.
        begin_ns = start_ns + 5 * MILLISECOND_NS + 217
        self.noise = Noise(f"{seed}/{rank}")
        self.host = Host(self.os_pid, begin_ns)
        self.device = Device(begin_ns)
        self.next_sequence = 1_350
        self.next_in_group: dict[str, int] = {}
        self.iterations: list[Iteration] = []

    # -- steps ---------------------------------------------------------------------------------

    def begin_step(self, position: int) -> None:
        host, noise = self.host, self.noise
        self.faults = self.scenario.during(position)
        self.step_start_ns = host.now_ns
        self.step_python_id = host.python_id()
        self.iterations = []
        host.clear()
        start_ns = host.now_ns + 30 * MICROSECOND_NS
        end_ns = start_ns + noise.about(1_150_000) + self.faults.starved_ns.get(self.rank, 0)
        self._operator_call(
            "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", start_ns, end_ns
        )
        host.now_ns = end_ns + noise.about(40_000)
        host.queue_free_ns = host.now_ns

    def end_step(self, step: int) -> Step:
        host = self.host
        if self.scenario.reads_loss:
            self._read_loss()
        end_ns = host.now_ns + 4 * MICROSECOND_NS
        frame_ns = (self.step_start_ns + 20 * MICROSECOND_NS, end_ns - MICROSECOND_NS)
        self._python_frame("train.py(57): train_step", *frame_ns, self.step_python_id, parent=0)
        self._operator_call(f"ProfilerStep#{step}", self.step_start_ns, end_ns)
        host.now_ns = end_ns + self.noise.about(12_000)
        return Step(
            id=step,
            host_start_ns=self.step_start_ns,
            host_end_ns=end_ns,
            iterations=tuple(self.iterations),
            cann_calls=tuple(sorted(host.cann_calls, key=lambda call: call.connection_id)),
            framework_calls=tuple(
                sorted(host.framework_calls, key=lambda call: (call.start_ns, -call.end_ns))
            ),
        )

    def _read_loss(self) -> None:
        """Wait on the host for what is launched: a late device makes its host late, too."""
        host = self.host
        start_ns = host.now_ns
        host.now_ns += 3 * MICROSECOND_NS
        until_ns = max(host.now_ns, self.device.free_ns[COMPUTE_STREAM]) + 15 * MICROSECOND_NS
        host.runtime_call("aclrtSynchronizeStreamWithTimeout", until_ns - host.now_ns)
        self._operator_call("aten::item", start_ns, host.now_ns)
        host.now_ns += 2 * MICROSECOND_NS

    def finish(self, start_ns: int, monotonic: bool, steps: tuple[Step, ...]) -> RankRun:
        last_ns = max(steps[-1].device_end_ns, steps[-1].host_end_ns)
        connection_id = self.host.connection_id()
        switches = tuple(
            Task(f"PROFILING_{word}", 0, task_id, NO_ID, at_ns, at_ns + 2 * TICK_NS, connection_id)
            for word, task_id, at_ns in (
                ("ENABLE", 8, start_ns + 2 * MILLISECOND_NS + 217),
                ("DISABLE", 9, last_ns + MILLISECOND_NS),
            )
        )
        # A collection ends on a whole microsecond of wall time, as it begins on one.
        shift_ns = WALL_MINUS_MONOTONIC_NS if monotonic else 0
        end_ns = last_ns + 3 * MILLISECOND_NS
        end_ns += -(end_ns + shift_ns) % MICROSECOND_NS
        return RankRun(
            rank=self.rank,
            device=self.rank % DEVICES_PER_HOST,
            os_pid=self.os_pid,
            start_ns=start_ns,
            end_ns=end_ns,
            steps=steps,
            switches=switches,
            counters=sample_counters(self.noise, start_ns, end_ns, self.megahertz),
        )

    @property
    def megahertz(self) -> int:
        return self.scenario.megahertz.get(self.rank, USUAL_MHZ)

    # -- iterations ----------------------------------------------------------------------------

    def begin_iteration(self) -> None:
        self.device.clear()
        self.iteration_host_ns = self.host.now_ns
        self.collectives: list[Collective] = []
        self.buckets: list[Launched] = []
        self.forward_sequences: list[list[int]] = []
        self.backward_host_ns = 0
        self.backward_end_ns = 0

    def end_iteration(self, graph: int, number: int) -> None:
        device = self.device
        kernels = [task for task in device.tasks if task.kernel is not None]
        start_ns = min(task.start_ns for task in device.tasks) - 2 * MICROSECOND_NS
        forward_start_ns = min(task.start_ns for task in kernels) - 2 * MICROSECOND_NS
        end_ns = max(task.end_ns for task in kernels) + 2 * MICROSECOND_NS
        self.iterations.append(
            Iteration(
                graph=graph,
                number=number,
                start_ns=start_ns,
                next_data_ns=(start_ns + 50 * TICK_NS, forward_start_ns - 50 * TICK_NS),
                forward_start_ns=forward_start_ns,
                backward_end_ns=self.backward_end_ns + MICROSECOND_NS,
                end_ns=end_ns,
                host_start_ns=self.iteration_host_ns,
                host_end_ns=self.host.now_ns,
                local_tasks=tuple(device.tasks),
                collectives=tuple(self.collectives),
                parents=tuple(device.parents),
            )
        )
        for stream in device.free_ns:
            device.hold(stream, end_ns + 20 * MICROSECOND_NS)
        self.host.now_ns += 5 * MICROSECOND_NS

    def forward(self, network: Network) -> None:
        """Launch the forward pass of one micro-batch."""
        if not self.forward_sequences:
            self._copy_batch()
        sequences: list[int] = []
        self.forward_sequences.append(sequences)
        for operator in network.forward:
            start_ns = self.host.now_ns
            sequences.append(self.next_sequence)
            self._launched_operator(operator, self.host.main_thread, self.next_sequence)
            self.next_sequence += 1
            name = f"nn.Module: {operator.module}_{operator.module_index}"
            module = self.host.python_id()
            end_ns = self.host.now_ns - MICROSECOND_NS
            self._python_frame(name, start_ns, end_ns, module, module_id=operator.module_index)
        self._wait_for_side_stream()

    def backward(self, network: Network, buckets: int = 0) -> None:
        """Launch the gradients; a bucket goes to HCCL as soon as its share is launched.

        Micro-batches come back in the order opposite to that of their forward passes.
        """
        self.backward_host_ns = self.backward_host_ns or self.host.now_ns
        count = len(network.backward)
        sequences = self.forward_sequences.pop()
        for index, operator in enumerate(network.backward):
            sequence = sequences[-1 - index]
            self._launched_operator(operator, self.host.backward_thread, sequence, forward_thread=1)
            launched = index + 1
            while len(self.buckets) < buckets * launched // count:
                self.buckets.append(self.launch_communication(backward=True))

    def end_backward(self) -> None:
        """Reading the loss makes the main thread wait for the backward pass on the device."""
        self.backward_end_ns = self.device.free_ns[COMPUTE_STREAM]
        until_ns = max(self.host.now_ns, self.backward_end_ns) + 15 * MICROSECOND_NS
        self.host.runtime_call("aclrtSynchronizeStreamWithTimeout", until_ns - self.host.now_ns)
        end_ns = self.host.now_ns - 5 * TICK_NS
        frame = self.host.python_id()
        times_ns = (self.backward_host_ns, end_ns)
        self._python_frame("torch/_tensor.py(492): backward", *times_ns, frame)

    def update(self, network: Network) -> None:
        """One optimizer call launches all update kernels; they wait for the last all-reduce."""
        host = self.host
        if self.collectives:
            self.wait_for(self.collectives[-1])
        call_ns = host.now_ns
        leaf_ns = call_ns + 5 * MICROSECOND_NS
        correlation_id = host.enqueue(host.main_thread, leaf_ns + 9 * MICROSECOND_NS, 4_000)
        queue_ns = launch_ns = host.queue_free_ns
        connections = []
        for operator in network.update:
            connections.append(self._launch(operator, launch_ns + MICROSECOND_NS))
            launch_ns += 24 * MICROSECOND_NS
            self._run_kernel(operator, launch_ns, connections[-1])
        name = f"aclnnForeach{network.update[0].kernel.op_type}"
        host.dequeue(name, queue_ns, launch_ns, correlation_id)
        leaf_end_ns = leaf_ns + 16 * MICROSECOND_NS
        end_ns = leaf_end_ns + 3 * MICROSECOND_NS
        self._operator_call(network.update[0].framework_name, call_ns, end_ns)
        host.record(
            FrameworkCall(
                "cpu_op", name, host.main_thread, leaf_ns, leaf_end_ns, launches=tuple(connections)
            )
        )
        host.now_ns = max(end_ns, launch_ns) + 2 * MICROSECOND_NS

    # -- communication -------------------------------------------------------------------------

    def communication_start(self, launched: Launched) -> int:
        """When this rank can begin: its data are ready and its stream is free."""
        free_ns = self.device.free_ns[COMMUNICATION_STREAM]
        start_ns = max(free_ns + 20 * TICK_NS, launched.launched_ns)
        end_ns = max(start_ns, launched.recorded_ns)
        connection_id = launched.wait_connection_id
        self.device.add("EVENT_WAIT", COMMUNICATION_STREAM, start_ns, end_ns, connection_id)
        return self.device.claim(end_ns + 3 * MICROSECOND_NS)

    def communicate(
        self, launched: Launched, op_type: str, group: Group, scope: str, tasks: tuple[Task, ...]
    ) -> Collective:
        """Record an op of HCCL that consists of these tasks."""
        device = self.device
        number = self.next_in_group.get(group.name, 0)
        self.next_in_group[group.name] = number + 1
        # Profiles that do not name their groups have the number that their group had when seen.
        digits = f"{group_number(group.name):03d}" if group.name != GROUP else GROUP[-3:]
        collective = Collective(
            name=f"{op_type}_{digits}_{number}_1",
            scope=scope,
            group=group.name,
            op_type=op_type,
            algorithm="MESH-RING",
            data_type="FP32",
            count=4_097_000,
            connection_id=launched.connection_id,
            tasks=tasks,
        )
        self.collectives.append(collective)
        device.add_parent(tasks[0], collective.start_ns, collective.end_ns)
        at_ns = collective.end_ns + 110 * TICK_NS
        done_id = launched.done_connection_id
        device.add("EVENT_RECORD", COMMUNICATION_STREAM, at_ns, at_ns + 2 * TICK_NS, done_id)
        return collective

    def communication_task_id(self) -> int:
        return self.device.task_id(COMMUNICATION_STREAM)

    def wait_for(self, collective: Collective) -> None:
        """Let the compute stream wait for an op of the communication stream."""
        host, device = self.host, self.device
        connection_id = host.runtime_call("aclrtStreamWaitEvent")
        start_ns = max(device.free_ns[COMPUTE_STREAM] + 4 * MICROSECOND_NS, host.now_ns)
        done_ns = collective.end_ns + 2 * MICROSECOND_NS
        device.add("EVENT_WAIT", COMPUTE_STREAM, start_ns, max(start_ns, done_ns), connection_id)

    def launch_communication(
        self,
        op_type: str = "hcom_allReduce_",
        operator: str = "HcclAllreduce",
        *,
        backward: bool = False,
    ) -> Launched:
        """Record on the compute stream that its data are there, and queue an op of HCCL."""
        host, device = self.host, self.device
        connection_id = host.runtime_call("aclrtRecordEvent")
        recorded_ns = max(device.free_ns[COMPUTE_STREAM] + 60 * TICK_NS, host.now_ns)
        end_ns = recorded_ns + 2 * TICK_NS
        device.add("EVENT_RECORD", COMPUTE_STREAM, recorded_ns, end_ns, connection_id)
        wait_connection_id = host.runtime_call("aclrtStreamWaitEvent")
        asking = host.backward_thread if backward else host.main_thread
        correlation_id = host.enqueue(asking, host.now_ns, 4_000)
        queue_ns = host.queue_free_ns
        launched_ns = queue_ns + self.noise.about(90_000)
        call_ns = (host.now_ns - MICROSECOND_NS, host.now_ns + 6 * MICROSECOND_NS)
        span_ns = (queue_ns + MICROSECOND_NS, launched_ns)
        thread = host.queue_thread
        host.cann("acl", "HOST_HCCL", op_type, op_type, thread, *span_ns)
        launch_id = host.cann("node", "launch", "launch", op_type, thread, *span_ns)
        span_ns = (queue_ns + 60 * MICROSECOND_NS, launched_ns - MICROSECOND_NS)
        host.cann("hccl", "master", "Launch_Ffts", "Launch_Ffts", thread, *span_ns)
        host.dequeue(op_type, queue_ns, launched_ns + MICROSECOND_NS, correlation_id)
        host.record(FrameworkCall("cpu_op", operator, asking, *call_ns, launches=(launch_id,)))
        host.now_ns += 8 * MICROSECOND_NS
        done_connection_id = host.runtime_call("aclrtRecordEvent")
        return Launched(launch_id, wait_connection_id, done_connection_id, launched_ns, end_ns)

    # -- operators -----------------------------------------------------------------------------

    def _copy_batch(self) -> None:
        """Copy the batch with one call and two device tasks: one launch, two ends."""
        host, device = self.host, self.device
        start_ns = host.now_ns
        host.now_ns += 3 * MICROSECOND_NS
        connection_id = host.runtime_call("aclrtMemcpyAsync", self.noise.about(22_000))
        host.record(
            FrameworkCall(
                "cpu_op",
                "acl_memcpy_host_to_device",
                host.main_thread,
                start_ns,
                host.now_ns,
                call_stack=TRAINING_STACK,
                launches=(connection_id,),
            )
        )
        launched_ns = host.now_ns + 8 * MICROSECOND_NS
        at_ns = device.claim(max(device.free_ns[COMPUTE_STREAM], launched_ns))
        for usual_ns in (42_000, 2_300):
            end_ns = at_ns + self.noise.about(usual_ns)
            device.add("MEMCPY_ASYNC", COMPUTE_STREAM, at_ns, end_ns, connection_id)
            at_ns = end_ns + 90 * TICK_NS

    def _launched_operator(
        self, operator: Operator, thread: int, sequence: int, forward_thread: int = 0
    ) -> None:
        """An operator call, its leaf, the task queue in between and the kernel on the device."""
        host, noise, kernel = self.host, self.noise, operator.kernel
        start_ns = host.now_ns + MICROSECOND_NS
        leaf_ns = start_ns + noise.about(7_000) + self.faults.late_host_ns.get(self.rank, 0)
        enqueue_ns = leaf_ns + noise.about(9_000)
        correlation_id = host.enqueue(thread, enqueue_ns, noise.between(3_000, 5_000))
        queue_ns = host.queue_free_ns
        launched_ns = queue_ns + 16 * MICROSECOND_NS
        connection_id = self._launch(operator, queue_ns + MICROSECOND_NS)
        host.dequeue(operator.launch_name, queue_ns, launched_ns, correlation_id)
        leaf_end_ns = enqueue_ns + 6 * MICROSECOND_NS
        end_ns = leaf_end_ns + noise.about(3_000)
        host.record(
            FrameworkCall(
                "cpu_op",
                operator.framework_name,
                thread,
                start_ns,
                end_ns,
                sequence=sequence,
                forward_thread=forward_thread,
                shapes=kernel.input_shapes.replace(";", ";\r\n"),
                types=kernel.input_types.lower().replace(";", ";\r\n"),
                call_stack=() if forward_thread else TRAINING_STACK,
            )
        )
        host.record(
            FrameworkCall(
                "cpu_op",
                operator.launch_name,
                thread,
                leaf_ns,
                leaf_end_ns,
                launches=(connection_id,),
            )
        )
        self._run_kernel(operator, launched_ns, connection_id)
        host.now_ns = end_ns + noise.about(9_000)

    def _launch(self, operator: Operator, start_ns: int) -> int:
        """The CANN calls that launch one kernel; the node launch carries the connection."""
        host, thread = self.host, self.host.queue_thread
        end_ns = start_ns + 14 * MICROSECOND_NS
        host.cann("acl", "ACL_NN", operator.launch_name, "0", thread, start_ns, end_ns)
        node_ns = start_ns + self.noise.between(2_000, 4_000)
        end_ns = node_ns + self.noise.between(4_000, 9_000)
        return host.cann("node", "launch", "launch", operator.kernel.name, thread, node_ns, end_ns)

    def _run_kernel(self, operator: Operator, launched_ns: int, connection_id: int) -> None:
        kernel, device = operator.kernel, self.device
        stream = SIDE_STREAM if kernel.core == "AI_CPU" else COMPUTE_STREAM
        earliest_ns = max(
            device.free_ns[stream] + self.noise.between(2_600, 6_000),
            launched_ns + self.noise.between(9_000, 14_000),
        )
        start_ns = device.claim(earliest_ns)
        # A fault changes no noise: the same run without it is the same but for the fault.
        took_ns = whole_ticks(self.noise.about(operator.duration_ns) * self._slowdown(operator))
        end_ns = start_ns + took_ns
        mixed = kernel.core == "MIX_AIV"
        context_id = 0 if mixed else NO_ID
        kind = RUNTIME_KINDS[kernel.core]
        task = device.add(kind, stream, start_ns, end_ns, connection_id, kernel, context_id)
        if mixed:
            device.add_parent(task, start_ns, end_ns)

    def _slowdown(self, operator: Operator) -> float:
        kernel = operator.kernel
        slowdown = self.slower.get(kernel.op_type, 1.0)
        if operator.slows_down:
            slowdown *= self.faults.slow_computing.get(self.rank, 1.0)
        if kernel.core != "AI_CPU":
            slowdown *= USUAL_MHZ / self.megahertz
        return slowdown

    def _wait_for_side_stream(self) -> None:
        """The backward pass needs the masks: the compute stream waits for the side stream."""
        host, device = self.host, self.device
        if not any(task.stream == SIDE_STREAM for task in device.tasks):
            return
        connection_id = host.runtime_call("aclrtRecordEvent")
        record_ns = max(device.free_ns[SIDE_STREAM] + 30 * TICK_NS, host.now_ns)
        end_ns = record_ns + 2 * TICK_NS
        device.add("EVENT_RECORD", SIDE_STREAM, record_ns, end_ns, connection_id)
        connection_id = host.runtime_call("aclrtStreamWaitEvent")
        start_ns = max(device.free_ns[COMPUTE_STREAM] + 90 * TICK_NS, host.now_ns)
        device.add("EVENT_WAIT", COMPUTE_STREAM, start_ns, max(start_ns, end_ns), connection_id)

    def _operator_call(self, name: str, start_ns: int, end_ns: int) -> None:
        self.host.record(
            FrameworkCall(
                "cpu_op", name, self.host.main_thread, start_ns, end_ns, call_stack=TRAINING_STACK
            )
        )

    def _python_frame(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        python_id: int,
        parent: int | None = None,
        module_id: int | None = None,
    ) -> None:
        self.host.record(
            FrameworkCall(
                "python_function",
                name,
                self.host.main_thread,
                start_ns,
                end_ns,
                python_id=python_id,
                parent_id=self.step_python_id if parent is None else parent,
                module_id=module_id,
            )
        )
