"""A `Run` made from a few parameters: what hosts launched, devices computed and ranks exchanged."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from simulator.collective import lay_out_all_reduce, lay_out_pair
from simulator.faulty_recording import FaultyRecording
from simulator.model import (
    MONOTONIC_START_NS,
    WALL_START_NS,
    Collective,
    Run,
    Step,
)
from simulator.network import Network, build_network
from simulator.parallelism import Parallelism
from simulator.rank import Launched, RankSimulation
from simulator.scenario import Scenario, slow_step
from simulator.truth import Group, Meeting, Truth

MOST_PLANES = 16
SEND, RECEIVE = ("hcom_send_", "HcclSend"), ("hcom_receive_", "HcclRecv")
BATCH = ("hcom_batchSendRecv_", "HcclBatchSendRecv")
"""What both ends of a pair are called where the framework batches them, as Megatron does."""


def make_run(
    ranks: int = 2,
    steps: int = 3,
    seed: int = 1,
    graphs: tuple[int, ...] = (1,),
    ops_per_step: int = 24,
    planes: int = 4,
    monotonic: bool = False,
    first_step: int = 1,
    slower: Mapping[str, float] | None = None,
    scenario: Scenario | None = None,
    profiled: Collection[int] | None = None,
    parallelism: Parallelism | None = None,
    names_groups: bool = False,
    recording: FaultyRecording | None = None,
) -> Run:
    """Simulate a run in which rank 1 computes slowly during the second step.

    Each step executes every graph of `graphs` once, each with `ops_per_step` operators. Times are
    Unix times, or those of the host's CLOCK_MONOTONIC_RAW when `monotonic` is set. `slower` tells
    by what some types of operators take longer than usual, `scenario` what else is wrong instead
    of that step. Of all ranks only `profiled` ones are in the run; its truth is about all. Ranks
    work on other data, all alike, unless `parallelism` shares the model. Profiles tell who is in
    which group if there is more than one, or if it `names_groups`, as newer versions do.
    `recording` tells what is wrong with clocks and records, not with the run.
    """
    if min(ranks, steps, planes, len(graphs)) < 1:
        raise ValueError("a run needs at least one rank, step, plane and graph")
    if planes > MOST_PLANES:
        raise ValueError(f"a collective has at most {MOST_PLANES} planes, not {planes}")
    kept = range(ranks) if profiled is None else sorted(profiled)
    if not kept or not set(kept) <= set(range(ranks)):
        raise ValueError(f"of ranks 0-{ranks - 1} some must be profiled, not {list(kept)}")
    parallelism = parallelism or Parallelism()
    if scenario or profiled or parallelism.named:
        # Every member talks to every other one, so that who is late shows in the planes of others.
        planes = min(ranks, MOST_PLANES)
    scenario = slow_step(step=min(1, steps - 1)) if scenario is None else scenario
    start_ns = MONOTONIC_START_NS if monotonic else WALL_START_NS
    networks = [build_network(ops_per_step, index) for index in range(len(graphs))]
    simulations = [
        RankSimulation(rank, seed, start_ns, slower or {}, scenario) for rank in range(ranks)
    ]
    cluster = _Cluster(simulations, parallelism, planes)
    finished: list[list[Step]] = [[] for _ in simulations]
    for index in range(steps):
        cluster.step = first_step + index
        for one in simulations:
            one.begin_step(index)
        for position, (graph, network) in enumerate(zip(graphs, networks, strict=True)):
            # The first graph exchanges two buckets, the others one: step traces get ragged rows.
            cluster.run_graph(network, 2 if position == 0 else 1)
            for one in simulations:
                one.end_iteration(graph, first_step + index)
        for one, rank_steps in zip(simulations, finished, strict=True):
            rank_steps.append(one.end_step(first_step + index))
    recorded = tuple(
        one.finish(start_ns, monotonic, tuple(rank_steps))
        for one, rank_steps in zip(simulations, finished, strict=True)
        if one.rank in kept
    )
    truth = Truth(
        ranks,
        tuple(kept),
        tuple((rank, cause) for rank, cause in scenario.causes if rank < ranks),
        cluster.groups,
        tuple(cluster.meetings),
        parallelism.named or names_groups,
    )
    run = Run(recorded, seed, tuple(graphs), ops_per_step, planes, monotonic, truth)
    return run if recording is None else recording.record(run)


class _Cluster:
    """All ranks while they run: only what they communicate makes them wait for each other."""

    def __init__(
        self, simulations: Sequence[RankSimulation], parallelism: Parallelism, planes: int
    ) -> None:
        self.simulations = simulations
        self.groups = parallelism.groups(len(simulations))
        self.meetings: list[Meeting] = []
        self.step = 0
        self._parallelism, self._planes = parallelism, planes
        self._send, self._receive = (BATCH, BATCH) if parallelism.batched else (SEND, RECEIVE)
        self._stages = [
            [one for one in simulations if parallelism.stage(one.rank, len(simulations)) == stage]
            for stage in range(parallelism.stages)
        ]

    def run_graph(self, network: Network, buckets: int) -> None:
        """Run one graph on all ranks."""
        data_groups = self._labelled("dp") if self._parallelism.named else self.groups
        buckets = buckets if data_groups else 0
        for one in self.simulations:
            one.begin_iteration()
        if self._parallelism.stages == 1:
            self._forward(self.simulations, network)
            for one in self.simulations:
                one.backward(network, buckets)
        else:
            self._run_pipeline(network, buckets)
        for one in self.simulations:
            one.end_backward()
        for bucket in range(buckets):
            for group in data_groups:
                launched = [self.simulations[rank].buckets[bucket] for rank in group.members]
                self._reduce(group, launched, f"Default/AllReduce-op{534 + bucket}")
        for one in self.simulations:
            one.update(network)

    def _forward(self, ranks: Sequence[RankSimulation], network: Network) -> None:
        """Compute forward, and sum up what the ranks that share layers have computed."""
        for one in ranks:
            one.forward(network)
        here = {one.rank for one in ranks}
        for group in self._labelled("tp"):
            if here.issuperset(group.members):
                members = [self.simulations[rank] for rank in group.members]
                launched = [one.launch_communication() for one in members]
                reduced = self._reduce(group, launched, "Default/AllReduce-op430")
                for one, op in zip(members, reduced, strict=True):
                    one.wait_for(op)

    def _run_pipeline(self, network: Network, buckets: int) -> None:
        """Run all micro-batches forward through the stages, then backward."""
        micro_batches = self._parallelism.micro_batches
        for _ in range(micro_batches):
            sent: list[Launched] = []
            for place, ranks in enumerate(self._stages):
                if place:
                    self._pass_on(self._stages[place - 1], sent, ranks)
                self._forward(ranks, network)
                if ranks is not self._stages[-1]:
                    sent = [one.launch_communication(*self._send) for one in ranks]
        for number in range(micro_batches):
            last = number + 1 == micro_batches
            for place in reversed(range(len(self._stages))):
                ranks = self._stages[place]
                if ranks is not self._stages[-1]:
                    self._pass_on(self._stages[place + 1], sent, ranks, backward=True)
                for one in ranks:
                    one.backward(network, buckets if last else 0)
                if place:
                    sent = [one.launch_communication(*self._send, backward=True) for one in ranks]

    def _pass_on(
        self,
        senders: Sequence[RankSimulation],
        sent: Sequence[Launched],
        receivers: Sequence[RankSimulation],
        *,
        backward: bool = False,
    ) -> None:
        """Let receivers compute when what the senders have launched is there."""
        for sender, of_sender, receiver in zip(senders, sent, receivers, strict=True):
            of_receiver = receiver.launch_communication(*self._receive, backward=backward)
            pair = tuple(sorted((sender.rank, receiver.rank)))
            pairs = (*self._labelled("pp"), *self._labelled("p2p"))
            group = next(one for one in pairs if one.members == pair)
            both = (sender, receiver)
            launched = (of_sender, of_receiver)
            tasks = lay_out_pair(
                sender.noise,
                (sender.communication_task_id(), receiver.communication_task_id()),
                (of_sender.connection_id, of_receiver.connection_id),
                (sender.communication_start(of_sender), receiver.communication_start(of_receiver)),
                (pair.index(sender.rank), pair.index(receiver.rank)),
                max(_slowdown(sender), _slowdown(receiver)),
            )
            types = (self._send[0], self._receive[0])
            ops = [
                one.communicate(each, op_type, group, f"Default/{op_type[5:-1]}-op431", laid_out)
                for one, each, op_type, laid_out in zip(both, launched, types, tasks, strict=True)
            ]
            self._remember("send", group, both, ops)
            receiver.wait_for(ops[1])

    def _reduce(self, group: Group, launched: Sequence[Launched], scope: str) -> list[Collective]:
        """Run an all-reduce of a group, which its members have launched."""
        members = [self.simulations[rank] for rank in group.members]
        starts_ns = [
            one.communication_start(each) for one, each in zip(members, launched, strict=True)
        ]
        planes = min(len(members), MOST_PLANES) if self._parallelism.named else self._planes
        # As in real captures, a group may have more members than ranks that were profiled. Here
        # the others come with the first.
        others = max(0, planes - len(members))
        slowdowns = [*map(_slowdown, members), *[1.0] * others]
        all_starts_ns = [*starts_ns, *[min(starts_ns)] * others]
        ops = [
            one.communicate(
                each,
                "hcom_allReduce_",
                group,
                scope,
                lay_out_all_reduce(
                    noise=one.noise,
                    number=number,
                    task_id=one.communication_task_id(),
                    connection_id=each.connection_id,
                    starts_ns=all_starts_ns,
                    planes=planes,
                    slowdowns=slowdowns,
                ),
            )
            for number, (one, each) in enumerate(zip(members, launched, strict=True))
        ]
        self._remember("allReduce", group, members, ops)
        return ops

    def _remember(
        self,
        kind: str,
        group: Group,
        members: Sequence[RankSimulation],
        ops: Sequence[Collective],
    ) -> None:
        self.meetings.append(
            Meeting(
                self.step,
                kind,
                ops[0].name,
                group.name,
                tuple(one.rank for one in members),
                tuple(op.start_ns for op in ops),
                tuple(op.end_ns for op in ops),
            )
        )

    def _labelled(self, label: str) -> tuple[Group, ...]:
        return tuple(group for group in self.groups if group.label == label)


def _slowdown(one: RankSimulation) -> float:
    """How many times as long links of a rank take now."""
    return one.faults.slow_links.get(one.rank, 1.0)
