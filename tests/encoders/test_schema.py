"""Proves that the schemas in proto/, the code, the files and the package perfetto agree."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from tests.support.places import ROOT
from tests.support.profile_shelf import ProfileShelf
from tests.support.trace_packets import packets_of
from timeline.commands.export import export
from timeline.encoders.perfetto_messages import (
    ANNOTATION_FILE,
    BOOT_TIME,
    EXPLICIT,
    EXTENDED_FILE,
    FILE_NAME,
    MESSAGES,
    PACKAGE,
    STATE_CLEARED,
    WALL_TIME,
    descriptor_bytes,
    messages,
)
from timeline.layers import ARGS_MESSAGES, MERGED_ARGS
from timeline.selection import Kind

TRACK_EVENT = """
syntax = "proto2";
package perfetto.protos;
message TrackEvent { extensions 1000 to 9999; }
"""
"""What the schema needs to know of Perfetto's own track_event.proto."""
DEBUG_ANNOTATION = """
syntax = "proto2";
package perfetto.protos;
message DebugAnnotation { optional uint64 name_iid = 1; optional uint64 string_value_iid = 17; }
"""
"""And of its debug_annotation.proto."""

_Message = Any
"""Classes of messages are made at run time, so there is no static type for them."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> descriptor_pb2.FileDescriptorSet:
    """proto/tlexport.proto and what it imports, as protoc understands them."""
    folder = tmp_path_factory.mktemp("proto")
    for name, text in ((EXTENDED_FILE, TRACK_EVENT), (ANNOTATION_FILE, DEBUG_ANNOTATION)):
        stub = folder / name
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text(text, encoding="utf-8")
    result = folder / "descriptors.bin"
    options = [f"-I{ROOT}", f"-I{folder}", "--include_imports", f"--descriptor_set_out={result}"]
    assert protoc.main(["protoc", *options, FILE_NAME]) == 0
    return descriptor_pb2.FileDescriptorSet.FromString(result.read_bytes())


def file_named(found: descriptor_pb2.FileDescriptorSet, name: str) -> _Message:
    return next(file for file in found.file if file.name == name)


def without_json_names(file: _Message) -> _Message:
    """protoc adds camel-case names for JSON, which say nothing that the names do not."""
    for field in [*file.extension, *(field for one in file.message_type for field in one.field)]:
        field.ClearField("json_name")
    return file


def test_the_proto_file_equals_the_schema_of_the_code(
    compiled: descriptor_pb2.FileDescriptorSet,
) -> None:
    """Names, numbers, labels, types, extensions, package and imports, in the same order."""
    wanted = without_json_names(file_named(compiled, FILE_NAME))
    wanted.ClearField("syntax")  # proto2 is the default
    embedded = descriptor_pb2.FileDescriptorSet.FromString(descriptor_bytes())
    assert len(embedded.file) == 1
    assert embedded.file[0] == wanted


def test_extensions_lie_in_the_range_that_perfetto_leaves_free(
    compiled: descriptor_pb2.FileDescriptorSet,
) -> None:
    numbers = [extension.number for extension in file_named(compiled, FILE_NAME).extension]
    assert len(numbers) == len(set(numbers)) == len(ARGS_MESSAGES) + 1
    assert all(9900 <= number <= 9999 for number in numbers)


@pytest.fixture(scope="module")
def packets(shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> list[_Message]:
    """The packets of a detail export."""
    target = tmp_path_factory.mktemp("schema") / "detail.pftrace"
    export(shelf.get("torch-db").path, target, kind=Kind.DETAIL)
    return list(packets_of(target.read_bytes()))


def pool_of_perfetto(compiled: descriptor_pb2.FileDescriptorSet) -> descriptor_pool.DescriptorPool:
    """A pool that knows TrackEvent, and nothing of tlexport."""
    made = descriptor_pool.DescriptorPool()
    for name in (EXTENDED_FILE, ANNOTATION_FILE):
        made.AddSerializedFile(file_named(compiled, name).SerializeToString())
    return made


@pytest.fixture(scope="module")
def pool(
    packets: list[_Message], compiled: descriptor_pb2.FileDescriptorSet
) -> descriptor_pool.DescriptorPool:
    """A pool that knows TrackEvent, and of tlexport only what the trace itself says."""
    made = pool_of_perfetto(compiled)
    for packet in packets:
        for file in packet.extension_descriptor.extension_set.file:
            made.AddSerializedFile(file.SerializeToString())
    return made


def test_the_embedded_schema_is_that_of_the_code(packets: list[_Message]) -> None:
    embedded = [
        packet.extension_descriptor.extension_set.SerializeToString()
        for packet in packets
        if packet.HasField("extension_descriptor")
    ]
    assert embedded == [descriptor_bytes()]
    first_event = next(at for at, packet in enumerate(packets) if packet.HasField("track_event"))
    described = next(
        at for at, packet in enumerate(packets) if packet.HasField("extension_descriptor")
    )
    assert described < first_event


def test_any_protobuf_library_reads_typed_args_with_the_embedded_schema(
    packets: list[_Message], pool: descriptor_pool.DescriptorPool
) -> None:
    track_event = message_factory.GetMessageClass(
        pool.FindMessageTypeByName("perfetto.protos.TrackEvent")
    )
    found: dict[str, list[_Message]] = {}
    for message in ARGS_MESSAGES.values():
        extension = pool.FindExtensionByName(f"tlexport.{message.extension}")
        message_factory.GetMessageClass(extension.message_type)
        for packet in packets:
            event = track_event.FromString(packet.track_event.SerializeToString())
            if event.HasExtension(extension):
                found.setdefault(message.extension, []).append(event.Extensions[extension])
    assert {"task", "hccl", "communication", "step"} <= found.keys()
    assert all(task.task_id > 0 for task in found["task"] if task.HasField("task_id"))
    assert any(task.HasField("task_id") for task in found["task"])
    moved = [task for task in found["hccl"] if task.HasField("size_bytes")]
    assert moved
    assert {task.size_bytes for task in moved} == {4, 2_064_384}
    counts = [op.count for op in found["communication"] if op.HasField("count")]
    assert set(counts) == {4_097_000}
    assert {step.iteration for step in found["step"]} == {1, 2, 3}


def test_events_hold_no_field_that_neither_perfetto_nor_the_schema_knows(
    packets: list[_Message], compiled: descriptor_pb2.FileDescriptorSet
) -> None:
    """Other tests may have told the classes of the library what tlexport adds."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    track_event = message_factory.GetMessageClass(
        pool_of_perfetto(compiled).FindMessageTypeByName("perfetto.protos.TrackEvent")
    )

    known = {message.number for message in (*ARGS_MESSAGES.values(), MERGED_ARGS)}
    unknown = {
        field.field_number
        for packet in packets
        for field in UnknownFieldSet(track_event.FromString(packet.track_event.SerializeToString()))
    }
    perfetto = set(packets[0].track_event.DESCRIPTOR.fields_by_number)
    assert unknown - perfetto
    assert unknown - perfetto <= known


# -- messages of the package perfetto --------------------------------------------------------------


ENCODED_ELSEWHERE = {"interned_data", "extension_set"}
"""Messages that are put in as bytes: on the wire both are the same."""


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_are_those_of_perfetto(name: str) -> None:
    theirs = protos.DESCRIPTOR.pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
    ours = messages().Trace.DESCRIPTOR.file.pool.FindMessageTypeByName(f"{PACKAGE}.{name}")
    assert ours.fields
    for field in ours.fields:
        known = theirs.fields_by_name[field.name]
        assert (field.number, field.is_repeated) == (known.number, known.is_repeated)
        if field.name in ENCODED_ELSEWHERE:
            assert (field.type, known.type) == (field.TYPE_BYTES, field.TYPE_MESSAGE)
        elif known.type == field.TYPE_ENUM:
            assert field.type in (field.TYPE_INT32, field.TYPE_UINT32)
        else:
            assert field.type == known.type
        if field.message_type is not None:
            assert field.message_type.full_name == known.message_type.full_name


def test_numbers_of_enumerations_are_those_of_perfetto() -> None:
    clocks = protos.BuiltinClock
    assert clocks.BUILTIN_CLOCK_BOOTTIME == BOOT_TIME
    assert clocks.BUILTIN_CLOCK_REALTIME == WALL_TIME
    assert protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED == STATE_CLEARED
    assert protos.TrackDescriptor.EXPLICIT == EXPLICIT
