"""Tables of memory: peaks of graphs, memory by operator and by tensor, and peaks of counters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from timeline.analysis.memory import NO_NODE, AllocatedMemory, MemoryUse, find_node, memory_use
from timeline.analysis.questions import EVERY_ROW
from timeline.analysis.rank_facts import RankFacts
from timeline.columns.strings import NO_NAME, StringPool
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import MemoryGraphs, StepPoints
from timeline.tables.table import Columns, Json, Method, Spec, given, no_numbers, texts_or_none

_METHOD = Method("memory", questions={"most_allocations": EVERY_ROW})

MEMORY_GRAPHS = Spec(
    "memory_graphs",
    "rank and graph, its peak memory as planned by MindSpore; or per rank, the peak of torch_npu's "
    "allocations",
    """
    rank, graph
    static_bytes: held throughout
    peak_bytes = Peak
    peak_node: position in the execution order where the peak is first reached
    text peak_operator = At operator: at that position; of the last allocation before the peak
    capacity_bytes: of the device
    nodes = Operators: their number
    tensors: their number, or that of allocations
    text fp_start: the operator that begins forward
    text bp_end: the operator that ends backward
    """,
    lambda run: _parts(run.facts, _graphs, _allocated),
    Json("memory_graphs"),
    _METHOD._replace(name="memory_graphs"),
)
MEMORY_OPERATORS = Spec(
    "memory_operators",
    "operator of a graph in execution order, or allocation in order of time",
    """
    rank, graph
    node: its position in that order, from 0
    text name
    use_bytes: held by the graph at that position
    size_bytes: of the operator's outputs and workspaces
    change_bytes: of use_bytes since the previous node
    """,
    lambda run: _parts(run.facts, _operators, _allocations),
    method=_METHOD._replace(by="operator"),
)
MEMORY_TENSORS = Spec(
    "memory_tensors",
    "tensor of a graph, or allocation in order of time",
    """
    rank, graph, tensor
    text type = Type
    size_bytes
    first = From operator: the first node of its lifetime
    last = To operator: the last node of its lifetime
    text operator = Operator: the one that creates it
    text at_peak: true if it lives at the peak
    """,
    lambda run: _parts(run.facts, _tensors, _held),
    method=_METHOD._replace(by="tensor"),
)
MOST_AT_PEAK = 50
"""Maximum number of tensors held at a peak that are shown, the largest ones."""


def _parts(
    facts: Sequence[RankFacts],
    planned: Callable[[RankFacts, MemoryUse], Columns],
    allocated: Callable[[int, AllocatedMemory], Columns],
) -> Iterator[Columns]:
    """Yield the columns of each rank for its planned graphs, and for its recorded allocations."""
    for rank in facts:
        tables = rank.profiler_tables
        if len(tables.of(MemoryGraphs)):
            yield planned(rank, memory_use(tables))
        if rank.allocated.peak_bytes != NO_ID:
            yield allocated(rank.rank, rank.allocated)


def _graphs(rank: RankFacts, use: MemoryUse) -> Columns:
    tables, strings = rank.profiler_tables, rank.profiler_tables.strings
    points, of_node = tables.of(StepPoints), _node_names(use, strings)
    return MEMORY_GRAPHS.part(
        rank.rank,
        use.graphs,
        strings,
        peak_bytes=use.peak_bytes,
        peak_node=np.ma.masked_array(use.peak_node - use.first_node[:-1], use.peak_node == NO_NODE),
        peak_operator=of_node[use.peak_node],
        nodes=use.node_count,
        tensors=use.tensor_count,
        fp_start=of_node[find_node(use, strings, points.fp_start, last=False)],
        bp_end=of_node[find_node(use, strings, points.bp_end, last=True)],
    )


def _operators(rank: RankFacts, use: MemoryUse) -> Columns:
    return MEMORY_OPERATORS.part(
        rank.rank,
        use.nodes,
        rank.profiler_tables.strings,
        use_bytes=use.use_bytes,
        size_bytes=use.size_bytes,
        change_bytes=use.change_bytes,
    )


def _tensors(rank: RankFacts, use: MemoryUse) -> Columns:
    strings = rank.profiler_tables.strings
    return MEMORY_TENSORS.part(
        rank.rank,
        use.tensors,
        strings,
        type=texts_or_none(strings)[use.tensors.kind],
        first=use.first,
        last=use.last,
        operator=_node_names(use, strings)[use.maker],
        at_peak=use.at_peak.astype(object),
    )


def _node_names(use: MemoryUse, strings: StringPool) -> npt.NDArray[np.object_]:
    """Return the names of nodes, with None appended, which NO_NODE (-1) selects."""
    return texts_or_none(strings)[np.append(use.nodes.name, np.int32(NO_NAME))]


def _allocated(rank: int, memory: AllocatedMemory) -> Columns:
    row = {
        "rank": rank,
        "peak_bytes": memory.peak_bytes,
        "peak_operator": memory.strings[memory.peak_name] or None,
        "tensors": memory.count,
    }
    return MEMORY_GRAPHS.of_rows([[*map(row.get, MEMORY_GRAPHS.kinds)]]).columns


def _allocations(rank: int, memory: AllocatedMemory) -> Columns:
    held = memory.held
    unknown = held.use_bytes == NO_ID
    change_bytes = np.ma.masked_array(
        np.diff(held.use_bytes, prepend=NO_ID), unknown | np.append(True, unknown)[:-1]
    )
    return MEMORY_OPERATORS.part(
        rank,
        held,
        memory.strings,
        graph=no_numbers(len(held)),
        node=no_numbers(len(held)),
        use_bytes=given(held.use_bytes, NO_ID),
        change_bytes=change_bytes,
    )


def _held(rank: int, memory: AllocatedMemory) -> Columns:
    held = memory.held
    return MEMORY_TENSORS.part(
        rank,
        held,
        memory.strings,
        **dict.fromkeys(("graph", "first", "last"), no_numbers(len(held))),
        tensor=np.arange(len(held)),
        type=np.full(len(held), None, object),
        operator=texts_or_none(memory.strings)[held.name],
        at_peak=held.at_peak.astype(object),
    )


RESERVED = "reserved"
"""Metric and name of the peak of reserved memory."""
MEMORY: Spec = Spec(
    "memory",
    "peak of reserved memory, or of a counter if counters are read, for a comparison",
    """
    rank
    text metric: reserved; None for a counter
    text group, name
    peak_bytes
    """,
    lambda run: MEMORY.of_rows(row for rank in run.facts for row in _peaks(rank)),
)


def _peaks(rank: RankFacts) -> Iterator[tuple[int, str | None, str, str, int]]:
    memory = rank.memory
    if memory.reserved_bytes != NO_ID:
        yield rank.rank, RESERVED, "", RESERVED, memory.reserved_bytes
    columns = (memory.table.group, memory.table.name, memory.table.peak_bytes)
    for group, name, peak_bytes in zip(*(one.tolist() for one in columns), strict=True):
        yield rank.rank, None, memory.strings[group], memory.strings[name], peak_bytes
