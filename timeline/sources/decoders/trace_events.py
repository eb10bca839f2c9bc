"""Types of JSON trace events, and their decoder."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import GenericAlias
from typing import Any, get_args

import msgspec

from timeline.sources.decoders.exported_values import Value
from timeline.sources.decoders.json_values import end_of_value

_EMPTY = msgspec.Raw(b"")


class Complete(msgspec.Struct, gc=False, tag_field="ph", tag="X"):
    """An interval. Its times are kept as text, as conversion to float would not be exact.

    Each format adds its own `args`.
    """

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    dur: msgspec.Raw = _EMPTY
    cat: str = ""


class Counter(msgspec.Struct, gc=False, tag_field="ph", tag="C"):
    """Samples of one or more counters at one timestamp."""

    name: str = ""
    pid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    args: dict[str, Any] | None = None


class _MetadataArgs(msgspec.Struct, gc=False):
    name: Value = None
    labels: Value = None


class Metadata(msgspec.Struct, gc=False, tag_field="ph", tag="M"):
    """The name of a process or thread, or the labels of a process."""

    name: str = ""
    pid: int | str | float = 0
    tid: int | str | float = 0
    args: _MetadataArgs | None = None


class Flow(msgspec.Struct, gc=False):
    """One end of an arrow; all ends of an arrow have the same category and id."""

    pid: int | str | float = 0
    tid: int | str | float = 0
    ts: msgspec.Raw = _EMPTY
    cat: str = ""
    id: msgspec.Raw = _EMPTY


class FlowStart(Flow, gc=False, tag_field="ph", tag="s"):
    """The start of an arrow."""


class FlowStep(Flow, gc=False, tag_field="ph", tag="t"):
    """A step of an arrow."""


class FlowFinish(Flow, gc=False, tag_field="ph", tag="f"):
    """The end of an arrow."""


class Other(msgspec.Struct, gc=False, tag_field="ph", tag="i"):
    """An event of a phase that no format uses."""


class Ignored(msgspec.Struct, gc=False):
    """An event of a known type without useful data."""


NOT_UTF8 = "events with text that is not UTF-8, drawn as \N{REPLACEMENT CHARACTER}"
LONGEST_TOKEN = 12
"""Maximum length of a literal or escaped character, which the end of a text may cut off."""
_STARTS = re.compile(rb'\{\s*"')
_PHASE = b'"ph"'
_BYTE_OF_ERROR = re.compile(r"\(byte (\d+)\)")
_BEHIND_VALUE = re.compile(r"trailing characters \(byte (\d+)\)")
_SURROGATE_BEGINS = b"\\ud", b"\\uD"
_SURROGATES = re.compile(
    rb"(?<!\\)((?:\\\\)*)"
    rb"(?:(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)
"""Escaped backslashes (group 1), then an escaped surrogate pair (group 2) or lone surrogate."""


@dataclass(frozen=True)
class Piece:
    """Decoded events of a part of a file.

    faults: a description and byte offset of each event that was not decoded as written. behind:
    the offset of the next event.
    """

    events: list[Any]
    faults: list[tuple[str, int]]
    behind: int


class _WholeUndecoded(msgspec.Struct, gc=False):
    """A file that holds an object, with its events as text."""

    traceEvents: list[msgspec.Raw] = []  # noqa: N815 - the key of the format


class _Phase(msgspec.Struct, gc=False):
    ph: str = ""


_decode_phase: Callable[[bytes | memoryview], _Phase] = msgspec.json.Decoder(_Phase).decode
_part_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_part_whole = msgspec.json.Decoder(_WholeUndecoded).decode
_part_event = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class EventDecoder:
    """Decodes the events of one format.

    kinds: a union of event types, which are distinguished by phase.
    """

    def __init__(self, kinds: Any) -> None:
        events = GenericAlias(list, (kinds,))
        whole = msgspec.defstruct("Whole", [("traceEvents", events, [])], gc=False)
        self._one: Callable[[bytes], Any] = msgspec.json.Decoder(kinds).decode
        self._list: Callable[[bytes], list[Any]] = msgspec.json.Decoder(events).decode
        self._whole: Callable[[bytes], Any] = msgspec.json.Decoder(whole).decode
        self._phases = frozenset(
            kind.__struct_config__.tag for kind in get_args(kinds) if kind is not Other
        )

    def whole_events(self, text: bytes | memoryview) -> Piece | None:
        """Return the events of a text that was cut between two events; None if it was not."""
        return self._decoded(b"".join((b"[", text, b"]")), 1)

    def whole_file(self, opening: bytes, text: bytes) -> Piece | None:
        """Return the events of a text that ends where the file ends; None if it is not valid.

        opening: JSON for the part of the file before the text, empty if the text is the whole file.
        """
        return self._decoded(opening + text, len(opening))

    def _decoded(self, text: bytes, begin: int) -> Piece | None:
        is_list = text.startswith(b"[")
        try:
            events = self._list(text) if is_list else self._whole(text).traceEvents
            return Piece(events, [], len(text))
        except (msgspec.ValidationError, UnicodeDecodeError):
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                return self._one_by_one(_parts_of(text), text, begin)
        except RecursionError:
            return None
        except msgspec.DecodeError:
            mended = _without_lone_surrogates(text)
            if mended != text:
                with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                    return self._one_by_one(_parts_of(mended), mended, begin, text)
        return None

    def _one_by_one(
        self, parts: Sequence[msgspec.Raw], text: bytes, begin: int, written: bytes | None = None
    ) -> Piece:
        """Decode each event by itself, as one of them has an unknown phase or unexpected types.

        parts: the text of each event. written: the text as in the file, if `text` was repaired.
        """
        events: list[Any] = []
        faults: list[tuple[str, int]] = []
        at = begin
        for part in parts:
            event_text = bytes(part)
            at = text.index(event_text, at)
            event, fault = self._decode_one(event_text)
            if written is not None and event_text != written[at : at + len(event_text)]:
                fault = fault or NOT_UTF8
            if event is not None:
                events.append(event)
            if fault:
                faults.append((fault, at - begin))
            at += len(event_text)
        return Piece(events, faults, len(text))

    def _decode_one(self, text: bytes) -> tuple[Any, str]:
        """Return an event, None if it cannot be decoded, and a description of its fault if any."""
        try:
            return self._one(text), ""
        except UnicodeDecodeError:
            repaired = text.decode("utf-8", errors="replace").encode()
            event, fault = self._decode_one(repaired)
            return event, fault or NOT_UTF8
        except RecursionError:
            return None, "events that nest too deeply"
        except msgspec.ValidationError:
            if self._is_other(text):
                return Other(), ""
            with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
                return self._one(_without_args(text)), "events whose args are of another shape"
        return None, "events of another shape"

    def _is_other(self, text: bytes) -> bool:
        try:
            return phase_of(text) not in self._phases
        except (msgspec.ValidationError, UnicodeDecodeError):
            return False


def _parts_of(text: bytes) -> Sequence[msgspec.Raw]:
    """Return the text of each event of a JSON list, or of an object with `traceEvents`.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the text is not valid.
    """
    return _part_list(text) if text.startswith(b"[") else _part_whole(text).traceEvents


def phase_of(text: bytes | memoryview) -> str:
    """Return the phase of an event, empty if it has none.

    Raises:
        msgspec.DecodeError, UnicodeDecodeError, RecursionError: the text is not an event.
    """
    return _decode_phase(text).ph


def _without_args(text: bytes) -> bytes:
    """Return an interval without its args; other events are useless without, and unchanged."""
    event = _part_event(text)
    if bytes(event.get("ph", b"")) == b'"X"':
        event.pop("args", None)
    return msgspec.json.encode(event)


def _without_lone_surrogates(text: bytes) -> bytes:
    r"""Replace each lone surrogate by \ufffd, which keeps the length of the text.

    Python writes lone surrogates for bytes of file names that are not UTF-8.
    """
    if not any(begin in text for begin in _SURROGATE_BEGINS):
        return text
    return _SURROGATES.sub(lambda match: match[0] if match[2] else match[1] + rb"\ufffd", text)


def fault_in(text: bytes) -> int | None:
    """Return the offset at which JSON is invalid, None if it is valid or only cut off."""
    text = _without_lone_surrogates(text)
    try:
        _parts_of(text)
    except msgspec.ValidationError:
        return None
    except msgspec.DecodeError as error:
        match = _BYTE_OF_ERROR.search(str(error))
        at = int(match[1]) if match else len(text)
        return at if at < len(text) - LONGEST_TOKEN else None
    except RecursionError:
        return _too_deep(text)
    return None


def _too_deep(text: bytes) -> int:
    """Return the offset at which nesting is too deep for the decoder, by bisection."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high) // 2
        try:
            with contextlib.suppress(msgspec.DecodeError):
                _parts_of(text[:middle])
            low = middle + 1
        except RecursionError:
            high = middle
    return low


def next_event(text: bytes, begin: int) -> int:
    """Return the start of the next whole event; the end of the text if there is none."""
    at = begin
    while match := _STARTS.search(text, at):
        start = match.start()
        try:
            is_event, at = _event_at(text, start)
        except RecursionError:
            # Objects inside this one may be nested too deeply too: skip all of it.
            is_event, at = False, end_of_value(text, start) or len(text)
        if is_event:
            return start
    return len(text)


def _event_at(text: bytes, start: int) -> tuple[bool, int]:
    """Return whether an event begins at a brace, and where to search on if not.

    That is behind an object without any phase in it. The decoder stops at the first byte that is
    invalid or follows the object, so that objects in each other are read once per level at most.
    """
    end = len(text)
    try:
        phase_of(memoryview(text)[start:])
    except UnicodeDecodeError:
        return False, start + 1
    except msgspec.DecodeError as error:
        behind = _BEHIND_VALUE.search(str(error))
        if behind is None:
            return False, start + 1
        end = start + int(behind[1]) - 1  # msgspec counts the byte that follows
    with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):
        if phase_of(text[start:end]):
            return True, start
    return False, start + 1 if _PHASE in text[start:end] else end


WHOLE_ARGS = "args"
"""The name of the single arg of formats in which all args of an event are one JSON value."""

_INSTANT = "i"


class EventFormat:
    """One format of trace events, for the decoder and the compiled scanner.

    Args:
        kinds: a union of event types, which are distinguished by phase.
        args: the types of the args of intervals and instants. An arg of type `Any` may be any JSON
            value, and one of type `msgspec.Raw` is kept as written. If this is empty, all args of
            an event together are read as one JSON value.
    """

    def __init__(self, kinds: Any, args: Sequence[type[msgspec.Struct]] = ()) -> None:
        self.kinds = kinds
        self.decoder: EventDecoder = EventDecoder(kinds)
        fields = [field for struct in args for field in msgspec.structs.fields(struct)]
        strict = [field for field in fields if field.type not in (Any, msgspec.Raw)]
        loose = [field for field in fields if field.type is Any]
        raw = [field for field in fields if field.type is msgspec.Raw]
        ordered = [*strict, *loose, *raw]
        self.has_whole_args = not args
        self.arg_numbers = {field.name: number for number, field in enumerate(ordered)}
        """The number of each arg in the scanner's output."""
        self.keys = [msgspec.json.encode(field.encode_name) for field in ordered]
        if self.has_whole_args:
            self.arg_numbers = {WHOLE_ARGS: 0}
        self.first_loose, self.first_raw = len(strict), len(strict) + len(loose)
        self.has_instants = any(
            kind.__struct_config__.tag == _INSTANT for kind in get_args(kinds) if kind is not Other
        )


@cache
def make_format(
    args: type[msgspec.Struct],
    other_kinds: Any,
    other_args: tuple[type[msgspec.Struct], ...] = (),
    left_out: frozenset[str] = frozenset(),
) -> EventFormat:
    """Return the format of intervals with args of a type.

    other_kinds: the types of events of other phases. other_args: the types of the args of instants
    among them. left_out: names of args of intervals that are not read.
    """
    fields = [field for field in msgspec.structs.fields(args) if field.name not in left_out]
    read: Any = msgspec.defstruct(
        args.__name__,
        [(field.name, field.type, field.default) for field in fields],
        rename={field.name: field.encode_name for field in fields},
        gc=False,
        frozen=True,
    )
    interval: Any = msgspec.defstruct(
        "Interval",
        [("args", read | None, None)],
        bases=(Complete,),
        gc=False,
        tag_field="ph",
        tag="X",
    )
    return EventFormat(interval | other_kinds, (read, *other_args))
