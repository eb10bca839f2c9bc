"""Reads communication.json and communication_matrix.json, which analysis.db stands for as well."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.vendor import VendorLinks
from timeline.sources.companions.vendor_communication import (
    ALL_OPS,
    MeasuredLink,
    MeasuredOps,
    add_op,
    links_of,
)
from timeline.sources.files.opened import open_profile_file

__all__ = ["read_link_file", "read_op_file"]


class _Times(msgspec.Struct):
    elapsed_ms: float | None = msgspec.field(name="Elapse Time(ms)", default=None)
    start_us: float | None = msgspec.field(name="Start Timestamp(us)", default=None)
    waited_ms: float = msgspec.field(name="Wait Time(ms)", default=0.0)
    transfer_ms: float = msgspec.field(name="Transit Time(ms)", default=0.0)


class _Transfers(msgspec.Struct):
    size_mb: float = msgspec.field(name="Transit Size(MB)", default=0.0)


class _Op(msgspec.Struct):
    times: _Times = msgspec.field(name="Communication Time Info", default_factory=_Times)
    transfers: dict[str, _Transfers] = msgspec.field(
        name="Communication Bandwidth Info", default_factory=dict
    )


class _Link(msgspec.Struct):
    transport: str = msgspec.field(name="Transport Type", default="")
    size_mb: float = msgspec.field(name="Transit Size(MB)", default=0.0)
    taken_ms: float = msgspec.field(name="Transit Time(ms)", default=0.0)


_decode_ops = msgspec.json.Decoder(dict[str, dict[str, dict[str, _Op]]]).decode
_decode_links = msgspec.json.Decoder(dict[str, dict[str, dict[str, dict[str, _Link]]]]).decode


def read_op_file(path: Path) -> MeasuredOps:
    """Read communication.json: ops by step and kind.

    Raises:
        SourceError: the file cannot be read, or holds something else.
    """
    found = MeasuredOps()
    for step, kinds in _decode_file(path, _decode_ops).items():
        for ops in kinds.values():
            for key, op in ops.items():
                name, _, group = key.partition("@")
                if name != ALL_OPS and op.times.elapsed_ms is not None:
                    sizes_mb = {kind: transfer.size_mb for kind, transfer in op.transfers.items()}
                    times = op.times
                    taken_ms = (op.times.elapsed_ms, times.waited_ms, times.transfer_ms)
                    start_us = times.start_us or 0.0
                    add_op(found, name, group, step, start_us, taken_ms, sizes_mb, path)
    return found


def read_link_file(path: Path, strings: StringPool) -> VendorLinks:
    """Read communication_matrix.json: what each link moved for all ops of a kind.

    Raises:
        SourceError: the file cannot be read, or holds something else.
    """
    cells = [
        (step, *_named(key), pair, MeasuredLink(link.transport, link.size_mb, link.taken_ms))
        for step, kinds in _decode_file(path, _decode_links).items()
        for links in kinds.values()
        for key, pairs in links.items()
        for pair, link in pairs.items()
    ]
    return links_of(cells, strings, path)


def _named(key: str) -> tuple[str, str]:
    """What ops of communication_matrix.json are called, and their group."""
    name, _, group = key.partition("@")
    return name, group


def _decode_file(path: Path, decode: Any) -> Any:
    try:
        with open_profile_file(path) as file:
            return decode(file.read())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SourceError(path, f"does not tell what communication moved: {error}.") from error
