"""The plan of the memory of graphs, memory_usage_N.pb, as MindSpore 1.2 to 2.2 leaves it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulator.model import MIB, RankRun, Run

STATIC_BYTES = 600 * MIB
CAPACITY_BYTES = 32 * 1024 * MIB
GRAIN_BYTES = 512


@dataclass(frozen=True)
class Tensor:
    """A tensor: from its first to its last node it lives, unless `life` says otherwise."""

    id: int
    size_bytes: int
    kind: str
    first: int
    last: int
    life: str = "LifeLongNone"


@dataclass(frozen=True)
class Node:
    """An operator: the ids of the tensors that it takes, puts out and works in."""

    name: str
    inputs: Sequence[int] = ()
    outputs: Sequence[int] = ()
    workspaces: Sequence[int] = ()


@dataclass(frozen=True)
class GraphMemory:
    """What one graph is to hold; a node's place is that in which it runs."""

    id: int
    nodes: Sequence[Node]
    tensors: Sequence[Tensor]
    static_bytes: int = STATIC_BYTES


@dataclass
class _Plan:
    """Nodes and tensors as they are made, ids from 1."""

    nodes: list[Node] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)

    def hold(self, size: int, kind: str, first: int, last: int, life: str = "LifeLongNone") -> int:
        self.tensors.append(
            Tensor(len(self.tensors) + 1, size * GRAIN_BYTES, kind, first, last, life)
        )
        return len(self.tensors)


def graph_memory(rank: RankRun, graph: int) -> GraphMemory:
    """The plan of one graph: each operator puts out a tensor that some later one still needs.

    In the forward half they are needed by their mirror images in the backward half.
    """
    iteration = next(one for one in rank.iterations if one.graph == graph)
    kernels = [kernel for _, kernel in iteration.kernels]
    last, plan = len(kernels) - 1, _Plan()
    plan.hold(24_576, "OutputOnly", 0, 0, "LifeLongGraphAll")
    before = plan.hold(12_288, "GetNextOutput", 0, min(2, last), "LifeLongGraphStart")
    for place, kernel in enumerate(kernels):
        size = kernel.blocks * 3_700 + place + 1
        needed = last - place if place < last // 2 else min(place + 1, last)
        life = "LifeLongGraphEnd" if place == last else "LifeLongNone"
        kind = "SummaryInput" if place == last else "Common"
        made = plan.hold(size, kind, place, max(place, needed), life)
        works = [plan.hold(2 * size, "Workspace", place, place)] if place % 3 == 1 else []
        name = kernel.scope.rpartition("/")[2]
        plan.nodes.append(Node(name, [before], [made], works))
        before = made
    return GraphMemory(graph, plan.nodes, plan.tensors)


def write_memory_graphs(run: Run, rank: RankRun, profiler: Path) -> None:
    """Write memory_usage_N.pb: what each graph is to hold while it runs."""
    graphs = [graph_memory(rank, graph) for graph in run.graphs]
    path = profiler / f"memory_usage_{rank.rank}.pb"
    path.write_bytes(memory_usage_bytes(graphs))


def memory_usage_bytes(
    graphs: Iterable[GraphMemory], capacity_bytes: int = CAPACITY_BYTES, *, packed: bool = True
) -> bytes:
    """The protobuf of such a file; as protobuf 3 does, zeros are left out.

    packed: whether lists of numbers are one field, or a field for each.
    """
    whole = b"".join(_bytes(1, _graph(graph, packed)) for graph in graphs)
    return whole + _number(2, capacity_bytes)


def _graph(graph: GraphMemory, packed: bool) -> bytes:
    nodes = (_bytes(3, _node(place, node, packed)) for place, node in enumerate(graph.nodes))
    tensors = (_bytes(4, _tensor(tensor)) for tensor in graph.tensors)
    return b"".join((_number(1, graph.id), _number(2, graph.static_bytes), *nodes, *tensors))


def _node(place: int, node: Node, packed: bool) -> bytes:
    lists = ((3, node.inputs), (4, node.outputs), (5, node.workspaces))
    return (
        _bytes(1, node.name.encode())
        + _number(2, place)
        + b"".join(_list(number, values, packed) for number, values in lists)
    )


def _tensor(tensor: Tensor) -> bytes:
    return (
        _number(1, tensor.id)
        + _number(2, tensor.size_bytes)
        + _bytes(3, tensor.kind.encode())
        + _number(4, tensor.first)
        + _number(5, tensor.last)
        + _bytes(6, tensor.life.encode())
    )


def _list(number: int, values: Sequence[int], packed: bool) -> bytes:
    if packed:
        return _bytes(number, b"".join(map(_varint, values))) if values else b""
    return b"".join(_varint(number << 3) + _varint(value) for value in values)


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value) if value else b""


def _bytes(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    value %= 1 << 64
    found = []
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
