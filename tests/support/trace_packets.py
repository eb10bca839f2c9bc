"""The packets of a trace as written, as Perfetto's own library decodes them."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


def packets_of(data: bytes) -> Iterator[Any]:
    """All packets of a trace, compressed ones unpacked."""
    for packet in protos.Trace.FromString(data).packet:
        if packet.HasField("compressed_packets"):
            yield from packets_of(zlib.decompress(packet.compressed_packets))
        else:
            yield packet


def attributes_of(data: bytes) -> dict[str, str]:
    """The facts that travel in a trace."""
    return {
        attribute.key: attribute.string_value
        for packet in packets_of(data)
        for attribute in packet.trace_attributes.attribute
    }
