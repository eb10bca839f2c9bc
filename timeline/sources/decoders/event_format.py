"""What the events of one format are: their types by phase, and the args that are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, get_args

import msgspec

from timeline.sources.decoders.event_pieces import EventDecoder, EventT
from timeline.sources.decoders.trace_events import Other

WHOLE_ARGS = "args"
"""What all args of an event together are called where they are one value."""

_INSTANT = "i"


class EventFormat(Generic[EventT]):
    """One format of trace events, for the decoder and for the compiled scanner.

    Args:
        kinds: a union of types that are told apart by phase.
        args: the types of the args of its intervals and instants. An arg whose type is `Any` may
            be any JSON value, and one that is `msgspec.Raw` keeps its spelling. Without any, the
            args of an event are one value, an object.
    """

    def __init__(
        self,
        kinds: Any,
        args: Sequence[type[msgspec.Struct]] = (),
    ) -> None:
        self.decoder: EventDecoder[EventT] = EventDecoder(kinds)
        fields = [field for struct in args for field in msgspec.structs.fields(struct)]
        strict = [field for field in fields if field.type not in (Any, msgspec.Raw)]
        loose = [field for field in fields if field.type is Any]
        raw = [field for field in fields if field.type is msgspec.Raw]
        ordered = [*strict, *loose, *raw]
        self.has_whole_args = not args
        self.arg_numbers = {field.name: number for number, field in enumerate(ordered)}
        """The number that the scanner gives each arg."""
        self.keys = [msgspec.json.encode(field.encode_name) for field in ordered]
        if self.has_whole_args:
            self.arg_numbers = {WHOLE_ARGS: 0}
        self.first_loose, self.first_raw = len(strict), len(strict) + len(loose)
        self.has_instants = any(
            kind.__struct_config__.tag == _INSTANT for kind in get_args(kinds) if kind is not Other
        )
