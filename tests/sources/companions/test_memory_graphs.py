"""Proves that the memory of graphs is what their file says, at each node and at the peak."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.writers.mindspore.tables.memory_graphs import (
    CAPACITY_BYTES,
    GraphMemory,
    Node,
    Tensor,
    memory_usage_bytes,
)
from timeline.analysis.memory import NO_NODE, MemoryUse, find_node, memory_use
from timeline.records.profiler_tables import MemoryGraphs, MemoryTensors, ProfilerTables
from timeline.records.tables import Omission
from timeline.sources.companions.delimited import TablesBuilder
from timeline.sources.companions.file_kinds import NumberedFile
from timeline.sources.companions.memory_graphs import read_memory_graphs

MB = 1 << 20
SIX_NODES = GraphMemory(
    1,
    [
        Node("Cast-op1", [0], [1]),
        Node("Conv2D-op2", [1, 2], [3], [9]),
        Node("ReLU-op3", [3], [4]),
        Node("MatMul-op4", [4, 5], [6], [10]),
        Node("Conv2DBackprop-op5", [6, 3], [7], [11, 7]),
        Node("ApplyMomentum-op6", [7], [8]),
    ],
    [
        Tensor(1, 64 * MB, "Common", 0, 1),
        Tensor(2, 16 * MB, "OutputOnly", 0, 0, "LifeLongGraphAll"),
        Tensor(3, 128 * MB, "Common", 1, 4),
        Tensor(4, 128 * MB, "Common", 2, 3),
        Tensor(6, 32 * MB, "Common", 3, 4),
        Tensor(7, 24 * MB, "Common", 4, 5),
        Tensor(8, 8 * MB, "SummaryInput", 5, 5, "LifeLongGraphEnd"),
        Tensor(9, 256 * MB, "Workspace", 1, 1),
        Tensor(10, 40 * MB, "Workspace", 3, 3),
        Tensor(11, 200 * MB, "Workspace", 4, 4),
        Tensor(12, 4 * MB, "Common", 3, 2),
        Tensor(13, 12 * MB, "GetNextOutput", 0, 2, "LifeLongGraphStart"),
    ],
)
"""A node that works in what it puts out, and a tensor that ends before it begins."""
LIVES = ("LifeLongNone", "LifeLongGraphAll", "LifeLongGraphStart", "LifeLongGraphEnd", "LifeLong")


def read(path: Path, data: bytes) -> tuple[ProfilerTables, tuple[Omission, ...]]:
    path.write_bytes(data)
    into = TablesBuilder(0)
    read_memory_graphs({NumberedFile.MEMORY_USAGE: (path,)}, into)
    return into.build()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "memory_usage_0.pb"


def test_each_node_holds_what_lives_there_and_the_peak_is_the_first_of_the_most(file: Path) -> None:
    """Use, sizes, changes, the peak, who is alive there, and who made each tensor."""
    tables, omissions = read(file, memory_usage_bytes([SIX_NODES]))
    use = memory_use(tables)
    assert (use.use_bytes / MB).tolist() == [692, 1076, 884, 944, 1000, 648]
    assert (use.size_bytes / MB).tolist() == [64, 384, 128, 72, 224, 8]
    assert (use.change_bytes / MB).tolist() == [92, 384, -192, 60, 56, -352]
    assert (use.peak_bytes.tolist(), use.peak_node.tolist()) == ([1076 * MB], [1])
    assert tables.of(MemoryGraphs).capacity_bytes.tolist() == [CAPACITY_BYTES]
    assert use.tensors.tensor[use.at_peak].tolist() == [1, 2, 3, 9, 13]
    assert use.maker.tolist() == [0, -1, 1, 2, 3, 4, 5, 1, 3, 4, -1, -1]
    assert use.first.tolist() == [0, 0, 1, 2, 3, 4, 5, 1, 3, 4, 3, 0]
    assert use.last.tolist() == [1, 5, 4, 3, 4, 5, 5, 1, 3, 4, 2, 2]
    (told,) = omissions
    assert "end before they begin" in told.reason
    assert told.rows == 1


@pytest.mark.parametrize(
    ("point", "last", "node"),
    [
        ("Default/network/Conv2D-op2", False, 1),
        ("Conv2DBackprop-op5", True, 4),
        ("Default/Conv2D-op9", False, NO_NODE),
    ],
)
def test_points_of_the_step_trace_are_found_without_their_scope(
    file: Path, point: str, last: bool, node: int
) -> None:
    """Nodes have the last part of the name alone; another operator is no node."""
    tables, _ = read(file, memory_usage_bytes([SIX_NODES]))
    code = np.array([tables.strings.code(point)], np.int32)
    assert find_node(memory_use(tables), tables.strings, code, last=last).tolist() == [node]


def test_graphs_are_apart_and_lists_need_not_be_packed(file: Path) -> None:
    """Two graphs with tensors of the same numbers, the later one first in the file."""
    other = dataclasses.replace(SIX_NODES, id=0, nodes=SIX_NODES.nodes[:3], static_bytes=0)
    tables, _ = read(file, memory_usage_bytes([SIX_NODES, other], packed=False))
    use = memory_use(tables)
    assert use.graphs.graph.tolist() == [0, 1]
    assert (use.peak_bytes / MB).tolist() == [476, 1076]
    assert (use.size_bytes / MB).tolist() == [64, 384, 128, 64, 384, 128, 72, 224, 8]
    assert (use.node_count.tolist(), use.tensor_count.tolist()) == ([3, 6], [12, 12])


def test_a_graph_without_nodes_or_tensors_holds_what_is_static(file: Path) -> None:
    """Such a graph has no peak to show, and one without tensors has it at its first node."""
    bare = GraphMemory(3, [], SIX_NODES.tensors, 7 * MB)
    idle = GraphMemory(4, SIX_NODES.nodes, [], 9 * MB)
    use = memory_use(read(file, memory_usage_bytes([bare, idle]))[0])
    assert (use.peak_bytes.tolist(), use.peak_node.tolist()) == ([7 * MB, 9 * MB], [NO_NODE, 0])
    assert not use.at_peak.any()


def test_a_file_cut_anywhere_is_read_as_far_as_it_goes_and_that_is_told(file: Path) -> None:
    """What is read of a cut file is its beginning; where it stops is told by its byte."""
    whole = memory_usage_bytes([SIX_NODES])
    held = len(read(file, whole)[0].of(MemoryTensors))
    assert held == len(SIX_NODES.tensors)
    for length in range(len(whole)):
        tables, omissions = read(file, whole[:length])
        tensors = tables.of(MemoryTensors).tensor.tolist()
        assert tensors == [tensor.id for tensor in SIX_NODES.tensors][: len(tensors)]
        is_all_but_the_capacity = length == len(whole) - len(memory_usage_bytes([]))
        damage = [
            one for one in omissions if "cut off" in one.reason or "without a byte" in one.reason
        ]
        assert bool(damage) != is_all_but_the_capacity
        assert all("byte" in one.reason for one in damage)


@st.composite
def graphs(draw: st.DrawFn) -> GraphMemory:
    count, tensors = draw(st.integers(0, 6)), draw(st.integers(0, 8))
    ids = st.lists(st.integers(0, tensors + 1), max_size=4)
    places = st.integers(-2, count + 2)
    return GraphMemory(
        draw(st.integers(0, 3)),
        [Node(f"Op-op{place}", draw(ids), draw(ids), draw(ids)) for place in range(count)],
        [
            Tensor(
                number,
                draw(st.integers(0, 1 << 40)),
                "Common",
                draw(places),
                draw(places),
                draw(st.sampled_from(LIVES)),
            )
            for number in range(tensors)
        ],
        draw(st.integers(0, 1 << 40)),
    )


def held_at(graph: GraphMemory, place: int) -> dict[int, int]:
    """The sizes of what lives at a node, word by word as MindSpore defines it."""
    last = len(graph.nodes) - 1
    held = {}
    for tensor in graph.tensors:
        first, until = {
            "LifeLongNone": (tensor.first, tensor.last),
            "LifeLongGraphAll": (0, last),
            "LifeLongGraphStart": (0, tensor.last),
            "LifeLongGraphEnd": (tensor.first, last),
        }.get(tensor.life, (0, -1))
        if first <= place <= until:
            held[tensor.id] = tensor.size_bytes
    return held


@given(st.lists(graphs(), max_size=3, unique_by=lambda graph: graph.id), st.booleans())
@settings(deadline=None)
def test_use_is_what_a_sum_over_all_tensors_says(
    tmp_path_factory: pytest.TempPathFactory, made: Sequence[GraphMemory], packed: bool
) -> None:
    """Any lives, also such as begin before the graph or end behind it, against plain sums."""
    file = tmp_path_factory.mktemp("graphs") / "memory_usage_0.pb"
    use = memory_use(read(file, memory_usage_bytes(made, packed=packed))[0])
    ordered = sorted(made, key=lambda graph: graph.id)
    assert use.graphs.graph.tolist() == [graph.id for graph in ordered]
    for row, graph in enumerate(ordered):
        assert _found(use, row) == _expected(graph)


def _found(use: MemoryUse, row: int) -> dict[str, Any]:
    nodes = slice(*use.first_node[row : row + 2].tolist())
    tensors = use.tensors.graph == use.graphs.graph[row]
    return {
        "use": use.use_bytes[nodes].tolist(),
        "size": use.size_bytes[nodes].tolist(),
        "change": use.change_bytes[nodes].tolist(),
        "peak": int(use.peak_bytes[row]),
        "at": int(use.peak_node[row]) - nodes.start if use.peak_node[row] != NO_NODE else None,
        "alive": set(use.tensors.tensor[tensors & use.at_peak].tolist()),
        "makers": [
            None if node == NO_NODE else node - nodes.start for node in use.maker[tensors].tolist()
        ],
    }


def _expected(graph: GraphMemory) -> dict[str, Any]:
    sizes = {tensor.id: tensor.size_bytes for tensor in graph.tensors}
    held = [held_at(graph, place) for place in range(len(graph.nodes))]
    use = [graph.static_bytes + sum(alive.values()) for alive in held]
    peak = max(use, default=graph.static_bytes)
    had = [{*node.outputs, *node.workspaces} for node in graph.nodes]
    return {
        "use": use,
        "size": [sum(sizes.get(one, 0) for one in ids) for ids in had],
        "change": [after - before for before, after in pairwise([graph.static_bytes, *use])],
        "peak": peak,
        "at": use.index(peak) if use else None,
        "alive": set(held[use.index(peak)]) if use else set(),
        "makers": [
            next((place for place, ids in enumerate(had) if tensor.id in ids), None)
            for tensor in graph.tensors
        ],
    }
