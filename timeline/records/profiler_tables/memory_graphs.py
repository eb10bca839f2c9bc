"""Which tensors a graph holds, and at which of its nodes each lives."""

from __future__ import annotations

import enum

import numpy as np

from timeline.columns.columns import Codes, ColumnTable, Int64, column
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_GRAPH, NO_ID

__all__ = ["Life", "MemoryGraphs", "MemoryNodes", "MemoryTensors", "NodeTensors"]


class Life(enum.IntEnum):
    """From which node of its graph to which a tensor lives, both included."""

    NODES = 0
    """From its first node to its last."""
    GRAPH = 1
    """From the graph's first node to its last."""
    GRAPH_START = 2
    """From the graph's first node to its own last."""
    GRAPH_END = 3
    """From its own first node to the graph's last."""
    NOT_KNOWN = 4


class MemoryGraphs(ColumnTable):
    """A row per graph: what it holds throughout, and how much memory the device has."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    static_bytes: Int64 = column(np.int64, NO_ID)
    capacity_bytes: Int64 = column(np.int64, NO_ID)


class MemoryNodes(ColumnTable):
    """A row per node; those of a graph follow each other in the order in which it runs them."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    node: Int64 = column(np.int64)
    """Its place in that order, from 0."""
    name: Codes = column(np.int32)


class MemoryTensors(ColumnTable):
    """A row per tensor: its size, and from which node of its graph to which it lives.

    kind: the type, such as Workspace. first, last: places of nodes in the execution order. Where
    `life` says so, it lives from the graph's first or to its last node instead; one that ends
    before it begins never lives. No two of a graph have the same number.
    """

    graph: Int64 = column(np.int64, NO_GRAPH)
    tensor: Int64 = column(np.int64)
    size_bytes: Int64 = column(np.int64)
    kind: Codes = column(np.int32, NO_NAME)
    first: Int64 = column(np.int64)
    last: Int64 = column(np.int64)
    life: Int64 = column(np.int64, Life.NODES)
    """A Life."""


class NodeTensors(ColumnTable):
    """A row per node and tensor that it puts out, or uses as a workspace."""

    graph: Int64 = column(np.int64, NO_GRAPH)
    node: Int64 = column(np.int64)
    tensor: Int64 = column(np.int64)
