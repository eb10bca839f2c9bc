"""The descriptor of args, as `proto/tlexport.proto` declares them, for Perfetto to read.

A message holds typed fields and, as debug annotations, what has no field: names, whose strings are
interned, and numbers spelled for reading. Perfetto names both alike, "task.task_id" and
"task.task_type", so all args of a slice are together where they are shown.
"""

from __future__ import annotations

from functools import cache

from timeline.layers import ARGS_MESSAGES, MERGED_ARGS

PACKAGE = "tlexport"
FILE_NAME = "proto/tlexport.proto"
EXTENDED_FILE = "protos/perfetto/trace/track_event/track_event.proto"
ANNOTATION_FILE = "protos/perfetto/trace/track_event/debug_annotation.proto"
ANNOTATION = ".perfetto.protos.DebugAnnotation"
ANNOTATIONS = 100
"""The field of each message that holds debug annotations."""
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
"""Fields of type double; all others are int64."""


@cache
def descriptor_bytes() -> bytes:
    """The FileDescriptorSet of all args, as embedded in each file."""
    from google.protobuf import descriptor_pb2

    field_type = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name=FILE_NAME, package=PACKAGE, dependency=[EXTENDED_FILE, ANNOTATION_FILE]
    )
    messages = (*ARGS_MESSAGES.values(), MERGED_ARGS)
    for message in sorted(messages, key=lambda message: message.number):
        made = file.message_type.add(name=message.name)
        for number, name in enumerate(message.fields, 1):
            made.field.add(
                name=name,
                number=number,
                label=field_type.LABEL_OPTIONAL,
                type=field_type.TYPE_DOUBLE if name in REALS else field_type.TYPE_INT64,
            )
        made.field.add(
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
            type_name=f".{PACKAGE}.{message.name}",
            extendee=EXTENDED,
        )
    return bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
