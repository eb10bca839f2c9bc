"""MindSpore's memory plans: the tensors of graphs and their lifetimes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import (
    Life,
    MemoryGraphs,
    MemoryNodes,
    MemoryTensors,
    NodeTensors,
)
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import TablesBuilder, table_of_rows
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.files.opened import read_whole_file

NUMBER, BYTES = 0, 2
"""Wire types of protobuf: a varint, and a length-delimited string, message or packed list."""
_FIXED = {1: 8, 5: 4}
"""Sizes of fields by wire type."""
_LONGEST = 10
"""The most bytes of a varint."""
_WORD, _SIGN = 1 << 64, 1 << 63
_CUT = "messages that are cut off or damaged, with what follows in them"


class Field(NamedTuple):
    """A field of a message: its number and wire type, and the range of its value in the file.

    whole: False if the file or message ends within the value.
    """

    number: int
    kind: int
    begin: int
    end: int
    whole: bool


def read_fields(data: bytes, begin: int, end: int, losses: LossLog) -> Iterator[Field]:
    """Yield the fields of the message in a part of a file, up to the first damaged one.

    A field that is longer than the message is cut, not whole, and the last.
    """
    at = begin
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        size, value = 0, at
        if kind == BYTES and at:
            size, value = _varint(data, at, end)
        elif kind == NUMBER and at:
            _, stop = _varint(data, at, end)
            size = stop - at
        else:
            size = _FIXED.get(kind, -1)
        if not (at and value and number) or size < 0 or (kind != BYTES and at + size > end):
            losses.add(_CUT, f"byte {start}")
            return
        at = value + size
        if at > end:
            losses.add(_CUT, f"byte {start}")
        yield Field(number, kind, value, min(at, end), at <= end)


def read_number(data: bytes, field: Field) -> int:
    """Return the value of a varint field as a signed number of 64 bits."""
    value = _varint(data, field.begin, field.end)[0] % _WORD
    return value - _WORD if value >= _SIGN else value


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Return the varint at a place and the place after it, which is 0 if the varint is cut off."""
    byte = data[at] if at < end else 128
    if byte < 128:
        return byte, at + 1
    value, shift = byte & 127, 7
    for place in range(at + 1, min(at + _LONGEST, end)):
        byte = data[place]
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place + 1
        shift += 7
    return 0, 0


_GRAPH, _CAPACITY = 1, 2
"""Fields of the outermost message."""
_ID, _STATIC, _NODE, _TENSOR = 1, 2, 3, 4
"""Fields of a graph."""
_NODE_FIELDS = {"name": 1, "output": 4, "workspace": 5}
_TENSOR_FIELDS = {"id": 1, "size": 2, "type": 3, "first": 4, "last": 5, "life": 6}
_TEXTS = frozenset({"name", "type", "life"})
_LISTS = frozenset({"output", "workspace"})
_LIVES = {
    b"LifeLongNone": Life.NODES,
    b"LifeLongGraphAll": Life.GRAPH,
    b"LifeLongGraphStart": Life.GRAPH_START,
    b"LifeLongGraphEnd": Life.GRAPH_END,
}
MOST_BYTES = 1 << 44
"""The largest plausible size of a tensor or device; sums of such sizes fit 64 bits."""

_Message = Any
"""A message or its class; classes are created at run time, so they have no static type."""


def read_memory_graphs(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read MemoryGraphs, MemoryNodes, MemoryTensors and NodeTensors of memory_usage_N.pb."""
    into.read_files(files, {NumberedFile.MEMORY_USAGE: _read_file})


def _read_file(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    data = read_whole_file(path)
    if not data:
        losses.add("files without a byte", "byte 0")
    capacity, graphs = NO_ID, dict[int, _Graph]()
    for field in read_fields(data, 0, len(data), losses):
        if field.number == _CAPACITY and field.kind == NUMBER:
            size_bytes = read_number(data, field)
            capacity = size_bytes if 0 < size_bytes <= MOST_BYTES else NO_ID
        elif field.number == _GRAPH and field.kind == BYTES:
            graph = _Graph(data, field, losses)
            if graphs.pop(graph.id, None):
                losses.add("graphs with the number of a later one", f"byte {field.begin}")
            graphs[graph.id] = graph
    for graph in graphs.values():
        graph.add(into, capacity)


class _Graph:
    """One graph of a file.

    `node_of` and `tensor_of` pair each node with each of its output and workspace tensors.
    """

    def __init__(self, data: bytes, field: Field, losses: LossLog) -> None:
        self.id, self.static_bytes = 0, 0
        self.names: list[str] = []
        self.node_of: list[int] = []
        self.tensor_of: list[int] = []
        self.tensors: dict[int, tuple[int, str, int, int, Life]] = {}
        node_type, tensor_type = _message_types()
        for part in read_fields(data, field.begin, field.end, losses):
            if part.kind == NUMBER and part.number == _ID:
                self.id = read_number(data, part)
            elif part.kind == NUMBER and part.number == _STATIC:
                size_bytes = read_number(data, part)
                self.static_bytes = size_bytes if 0 <= size_bytes <= MOST_BYTES else 0
                if size_bytes != self.static_bytes:
                    losses.add("impossible static sizes", f"byte {part.begin}")
            elif part.kind == BYTES and part.number == _NODE:
                self._add_node(_parsed(node_type, data, part, losses))
            elif part.kind == BYTES and part.number == _TENSOR and part.whole:
                self._add_tensor(_parsed(tensor_type, data, part, losses), part.begin, losses)
        is_known = np.isin(self.tensor_of, list(self.tensors))
        if not is_known.all():
            where = f"node {self.node_of[int(np.argmin(is_known))]}"
            reason = "tensors of nodes that the graph does not hold"
            losses.add(reason, where, int((~is_known).sum()))

    def _add_node(self, node: _Message) -> None:
        """Add a node; an unreadable one keeps its place, since lifetimes refer to places."""
        place = len(self.names)
        self.names.append("" if node is None else node.name.decode("utf-8", "replace"))
        if node is not None:
            tensors = [*node.output, *node.workspace]
            self.tensor_of += tensors
            self.node_of += [place] * len(tensors)

    def _add_tensor(self, tensor: _Message, begin: int, losses: LossLog) -> None:
        if tensor is None:
            return
        if not 0 <= tensor.size <= MOST_BYTES:
            losses.add("tensors of an impossible size", f"byte {begin}")
            return
        life = _LIVES.get(tensor.life, Life.NOT_KNOWN)
        if life is Life.NOT_KNOWN:
            losses.add("tensors of unknown lifetime", f"byte {begin}")
        elif life is Life.NODES and tensor.first > tensor.last:
            losses.add("tensors that end before they begin, and count for nothing", f"byte {begin}")
        if tensor.id in self.tensors:
            losses.add("tensors with the number of a later one", f"byte {begin}")
        kind = tensor.type.decode("utf-8", "replace")
        self.tensors[tensor.id] = (tensor.size, kind, tensor.first, tensor.last, life)

    def add(self, into: TablesBuilder, capacity_bytes: int) -> None:
        """Add the rows of the graph to the tables."""
        code = into.strings.code
        into.add(table_of_rows(MemoryGraphs, [(self.id, self.static_bytes, capacity_bytes)]))
        nodes = [(self.id, node, code(name)) for node, name in enumerate(self.names)]
        into.add(table_of_rows(MemoryNodes, nodes))
        tensors = [
            (self.id, number, size_bytes, code(kind), *lives)
            for number, (size_bytes, kind, *lives) in self.tensors.items()
        ]
        into.add(table_of_rows(MemoryTensors, tensors))
        pairs = [(self.id, *pair) for pair in zip(self.node_of, self.tensor_of, strict=True)]
        into.add(table_of_rows(NodeTensors, pairs))


def _parsed(kind: _Message, data: bytes, field: Field, losses: LossLog) -> _Message:
    """Parse the message in a field; None if it is cut or damaged."""
    from google.protobuf.message import DecodeError

    if field.whole:
        try:
            return kind.FromString(data[field.begin : field.end])
        except DecodeError:
            losses.add("nodes and tensors that cannot be read", f"byte {field.begin}")
    return None


@cache
def _message_types() -> tuple[_Message, _Message]:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="memory_usage.proto", package="memory_usage")
    field_type = descriptor_pb2.FieldDescriptorProto
    for name, fields in (("Node", _NODE_FIELDS), ("Tensor", _TENSOR_FIELDS)):
        message = file.message_type.add(name=name)
        for field, number in fields.items():
            message.field.add(
                name=field,
                number=number,
                label=field_type.LABEL_REPEATED if field in _LISTS else field_type.LABEL_OPTIONAL,
                # A string field would reject text that is not UTF-8.
                type=field_type.TYPE_BYTES if field in _TEXTS else field_type.TYPE_INT64,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return tuple(
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"memory_usage.{name}"))
        for name in ("Node", "Tensor")
    )
