"""Typed args as Perfetto sees them: `proto/tlexport.proto` as a table, and its descriptor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from timeline.tracks.model import Schema

__all__ = ["MESSAGES", "Message", "descriptor_bytes"]

PACKAGE = "tlexport"
FILE_NAME = "proto/tlexport.proto"
EXTENDED_FILE = "protos/perfetto/trace/track_event/track_event.proto"
EXTENDED = ".perfetto.protos.TrackEvent"
REALS = frozenset({"bandwidth_gb_s", "bus_bandwidth_gb_s"})
"""Fields of type double; all others are int64."""


@dataclass(frozen=True)
class Message:
    """One message: its name, the extension that carries it, and its fields by number from 1."""

    name: str
    extension: str
    number: int
    fields: tuple[str, ...]


MESSAGES: dict[Schema, Message] = {
    Schema.TASK: Message(
        "DeviceTask",
        "task",
        9901,
        (
            "task_id",
            "graph",
            "stream_id",
            "batch_id",
            "context_id",
            "connection_id",
            "blocks",
            "size_bytes",
            "occupancy_percent",
        ),
    ),
    Schema.HCCL_TASK: Message(
        "HcclTask",
        "hccl",
        9902,
        (
            "src_rank",
            "dst_rank",
            "size_bytes",
            "bandwidth_gb_s",
            "stream_id",
            "task_id",
            "context_id",
            "graph",
        ),
    ),
    Schema.COMMUNICATION_OP: Message(
        "CommunicationOp",
        "communication",
        9903,
        (
            "count",
            "graph",
            "connection_id",
            "waited_ns",
            "last_rank",
            "transfer_ns",
            "bus_bandwidth_gb_s",
            "arrived_after_first_ns",
        ),
    ),
    Schema.STEP: Message(
        "Step",
        "step",
        9904,
        (
            "graph",
            "iteration",
            "computing_ns",
            "communication_ns",
            "not_overlapped_ns",
            "free_ns",
            "slowest_rank",
            "fastest_rank",
            "slowest_ns",
            "fastest_ns",
            "span_ns",
            "not_overlapped_percent",
            "free_percent",
            "spread_percent",
            "copies_ns",
            "idle_ns",
            "idle_percent",
        ),
    ),
    Schema.HOST_CALL: Message("HostCall", "host", 9905, ("connection_id", "process_id")),
    Schema.SCOPE: Message("Scope", "scope", 9906, ("level",)),
    Schema.NOTE: Message("Missing", "missing", 9907, ("tasks", "hccl_tasks", "host_calls")),
}


@cache
def descriptor_bytes() -> bytes:
    """The FileDescriptorSet of the schema, as embedded in each file."""
    from google.protobuf import descriptor_pb2

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name=FILE_NAME, package=PACKAGE, dependency=[EXTENDED_FILE]
    )
    for message in MESSAGES.values():
        made = file.message_type.add(name=message.name)
        for number, name in enumerate(message.fields, 1):
            made.field.add(
                name=name,
                number=number,
                label=field_type.LABEL_OPTIONAL,
                type=field_type.TYPE_DOUBLE if name in REALS else field_type.TYPE_INT64,
            )
        file.extension.add(
            name=message.extension,
            number=message.number,
            label=field_type.LABEL_OPTIONAL,
            type=field_type.TYPE_MESSAGE,
            type_name=f".{PACKAGE}.{message.name}",
            extendee=EXTENDED,
        )
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
