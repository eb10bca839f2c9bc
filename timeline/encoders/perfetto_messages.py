"""Protobuf classes of the Perfetto messages used outside of rows, and the schema of args."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any

from timeline.layers import ARGS_MESSAGES, MERGED_ARGS

PACKAGE = "perfetto.protos"
MESSAGES = {
    "Trace": {"packet": (1, "[TracePacket]")},
    "TracePacket": {
        "clock_snapshot": (6, "ClockSnapshot"),
        "trusted_packet_sequence_id": (10, "uint32"),
        "interned_data": (12, "bytes"),
        "sequence_flags": (13, "uint32"),
        "synchronization_marker": (36, "bytes"),
        "trace_packet_defaults": (59, "TracePacketDefaults"),
        "track_descriptor": (60, "TrackDescriptor"),
        "extension_descriptor": (72, "ExtensionDescriptor"),
        "first_packet_on_sequence": (87, "bool"),
        "trace_attributes": (126, "TraceAttributes"),
    },
    "ClockSnapshot": {"clocks": (1, "[ClockSnapshot.Clock]")},
    "ClockSnapshot.Clock": {
        "clock_id": (1, "uint32"),
        "timestamp": (2, "uint64"),
        "is_incremental": (3, "bool"),
    },
    "ExtensionDescriptor": {"extension_set": (1, "bytes")},
    "TraceAttributes": {"attribute": (1, "[TraceAttributes.Attribute]")},
    "TraceAttributes.Attribute": {"key": (1, "string"), "string_value": (3, "string")},
    "TrackDescriptor": {
        "uuid": (1, "uint64"),
        "name": (2, "string"),
        "parent_uuid": (5, "uint64"),
        "counter": (8, "CounterDescriptor"),
        "child_ordering": (11, "int32"),
        "sibling_order_rank": (12, "int32"),
        "description": (14, "string"),
    },
    "CounterDescriptor": {"unit_name": (6, "string")},
    "TracePacketDefaults": {
        "track_event_defaults": (11, "TrackEventDefaults"),
        "timestamp_clock_id": (58, "uint32"),
    },
    "TrackEventDefaults": {"track_uuid": (11, "uint64")},
}
"""Fields by message, with their numbers and types; types of repeated fields are in brackets.

Messages that other code encodes are declared as bytes, and enumerations as numbers.
"""
BOOT_TIME, WALL_TIME = 6, 1
"""Values of BuiltinClock: time since the machine booted, and wall time."""
STATE_CLEARED = 1
"""Value of TracePacket.SequenceFlags: a sequence begins."""
EXPLICIT = 3
"""Value of TrackDescriptor.ChildTracksOrdering: by sibling_order_rank."""


@cache
def messages() -> Any:
    """Return the classes of top-level messages as attributes of a namespace.

    They are in their own descriptor pool, so that the package perfetto can be loaded too.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="perfetto_messages.proto", package=PACKAGE)
    descriptors = dict[str, Any]()
    for name, fields in MESSAGES.items():
        outer, _, inner = name.rpartition(".")
        message = descriptors[outer].nested_type.add() if outer else file.message_type.add()
        message.name = inner
        descriptors[name] = message
        for field_name, (number, kind) in fields.items():
            field = message.field.add(name=field_name, number=number, label=kinds.LABEL_OPTIONAL)
            single = kind.strip("[]")
            if single != kind:
                field.label = kinds.LABEL_REPEATED
            if single in MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".{PACKAGE}.{single}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{single.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return SimpleNamespace(
        **{
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
            for name in MESSAGES
            if "." not in name
        }
    )


def last_packet(before_bytes: int) -> bytes:
    """Return the last packet of a file, a mark that viewers skip, with the size of all before it.

    It tells whether anything was appended to the file.
    """
    mark = before_bytes.to_bytes(8, "little")
    return bytes(messages().Trace(packet=[{"synchronization_marker": mark}]).SerializeToString())


ARGS_PACKAGE = "tlexport"
FILE_NAME = "proto/tlexport.proto"
EXTENDED_FILE = "protos/perfetto/trace/track_event/track_event.proto"
ANNOTATION_FILE = "protos/perfetto/trace/track_event/debug_annotation.proto"
ANNOTATION = ".perfetto.protos.DebugAnnotation"
ANNOTATIONS = 100
"""Number of the field with debug annotations in each message of args."""
EXTENDED = ".perfetto.protos.TrackEvent"
REALS = frozenset(
    {
        "bandwidth_gb_s",
        "bus_bandwidth_gb_s",
        "utilization",
        "cube_utilization",
        "vector_utilization",
    }
)
"""Args of type double; all others are int64."""


@cache
def descriptor_bytes() -> bytes:
    """Return the FileDescriptorSet of all messages of args, as embedded in each file."""
    from google.protobuf import descriptor_pb2

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name=FILE_NAME, package=ARGS_PACKAGE, dependency=[EXTENDED_FILE, ANNOTATION_FILE]
    )
    messages = (*ARGS_MESSAGES.values(), MERGED_ARGS)
    for message in sorted(messages, key=lambda message: message.number):
        descriptor = file.message_type.add(name=message.name)
        for number, name in enumerate(message.fields, 1):
            descriptor.field.add(
                name=name,
                number=number,
                label=field_type.LABEL_OPTIONAL,
                type=field_type.TYPE_DOUBLE if name in REALS else field_type.TYPE_INT64,
            )
        descriptor.field.add(
            name="annotations",
            number=ANNOTATIONS,
            label=field_type.LABEL_REPEATED,
            type=field_type.TYPE_MESSAGE,
            type_name=ANNOTATION,
        )
        file.extension.add(
            name=message.extension,
            number=message.number,
            label=field_type.LABEL_OPTIONAL,
            type=field_type.TYPE_MESSAGE,
            type_name=f".{ARGS_PACKAGE}.{message.name}",
            extendee=EXTENDED,
        )
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
