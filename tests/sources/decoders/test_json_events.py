"""Proves that trace files of any layout read alike, whatever the size of the blocks."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.deadline import deadline
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.tables import Omission
from timeline.sources.ascend_trace.tables import AscendArgs, ascend_format
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.event_columns import columns_of_decoded
from timeline.sources.decoders.json_events import BLOCK_BYTES, look_for_metadata, read_events
from timeline.sources.decoders.trace_events import Other, make_format

EventObject = dict[str, Any]

BOM = b"\xef\xbb\xbf"
EVIL_NAMES = (
    '}, {"ph":"X"}, {',
    '"}],"traceEvents":[{',
    'Default/"quoted\\"/op}',
    "\\",
    "中文 μs é",
    "[{,}]",
)

KINDS: dict[str, type[msgspec.Struct]] = {
    str(kind.__struct_config__.tag): kind for kind in get_args(ascend_format().kinds)
}
"""The type that each phase is read as."""
SPELLED = {field.encode_name: field.name for field in msgspec.structs.fields(AscendArgs)}

names = st.sampled_from(EVIL_NAMES) | st.text(max_size=12)
numbers = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | names,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
ids = st.integers(0, 2**40) | names
events = st.fixed_dictionaries(
    {"ph": st.sampled_from("XMCstf"), "name": names},
    optional={
        "pid": ids,
        "tid": ids,
        "ts": numbers | st.decimals(0, 10**15, places=3).map(str),
        "dur": numbers,
        "cat": names,
        "id": ids,
        "args": st.dictionaries(names, values, max_size=4)
        | st.dictionaries(names | st.sampled_from(sorted(SPELLED)), numbers | names, max_size=4),
        "bp": st.just("e"),
        "unknown": values,
    },
).flatmap(lambda event: st.permutations(list(event.items())).map(dict))


@dataclass(frozen=True)
class Layout:
    """How a document is written: keys around the events, indentation, escapes, and a BOM."""

    before: EventObject | None
    after: EventObject
    indent: int | None
    separators: tuple[str, str] | None
    escapes: bool
    marked: bool

    def document(self, found: Sequence[EventObject]) -> bytes:
        whole: object = found
        if self.before is not None:
            whole = {**self.before, "traceEvents": found, **self.after}
        text = json.dumps(
            whole, indent=self.indent, separators=self.separators, ensure_ascii=self.escapes
        )
        return (BOM if self.marked else b"") + text.encode()


neighbours = st.dictionaries(
    st.sampled_from(["displayTimeUnit", "otherData", "metadata", "schemaVersion", "stackFrames"]),
    values | st.just([{"a": 1}, {"b": 2}]) | st.just({"traceEvents": [{"ph": "X"}]}),
    max_size=3,
)
layouts = st.builds(
    Layout,
    before=st.none() | neighbours,
    after=neighbours,
    indent=st.sampled_from([None, None, 0, 1, 4]),
    separators=st.sampled_from([None, (",", ":"), (" ,\n", " : ")]),
    escapes=st.booleans(),
    marked=st.booleans(),
)
PLAIN = Layout(None, {}, None, None, escapes=True, marked=False)
OBJECT = Layout({"displayTimeUnit": "ns"}, {}, None, None, escapes=True, marked=False)


def plain(event: msgspec.Struct) -> EventObject:
    """The event as plain values, its raw parts decoded; what it does not have is left out."""
    default = type(event)()
    return {"ph": event.__struct_config__.tag} | {
        field: plain_value(value)
        for field in event.__struct_fields__
        if (value := getattr(event, field)) != getattr(default, field)
    }


def plain_value(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    if isinstance(value, msgspec.Struct):
        held = {field: getattr(value, field) for field in value.__struct_fields__}
        empty = type(value)()
        return {
            field: plain_value(one) for field, one in held.items() if one != getattr(empty, field)
        }
    return value


def wanted(event: EventObject) -> EventObject:
    """What is to be read of an event: known fields, as far as they differ from the defaults."""
    kind = KINDS[event["ph"]]
    default = kind()
    made = {"ph": event["ph"]}
    for field, value in event.items():
        if field == "args" and field in kind.__struct_fields__:
            made[field] = wanted_args(event["ph"], value)
        elif field in kind.__struct_fields__ and value != getattr(default, field):
            made[field] = value
    return made


def wanted_args(phase: str, args: EventObject) -> EventObject:
    """Counters keep all args, intervals those with a meaning, metadata its name."""
    if phase == "C":
        return args
    known = SPELLED if phase == "X" else {"name": "name"}
    return {
        known[name]: value for name, value in args.items() if name in known and value is not None
    }


def read(path: Path, block_bytes: int) -> list[EventObject]:
    return [
        plain(event)
        for block in read_events(ascend_format().decoder, path, block_bytes)
        for event in block
    ]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Callable[[bytes], Path]:
    """Write bytes to a file, the same one each time."""
    path = tmp_path_factory.mktemp("traces") / "trace.json"

    def written(data: bytes) -> Path:
        path.write_bytes(data)
        return path

    return written


@given(st.lists(events, max_size=6), layouts, st.data())
def test_events_do_not_depend_on_layout_or_block_size(
    write: Callable[[bytes], Path], found: list[EventObject], layout: Layout, data: st.DataObject
) -> None:
    document = layout.document(found)
    path = write(document)
    block_bytes = data.draw(st.integers(1, 40) | st.integers(1, len(document) + 1))
    assert read(path, block_bytes) == [wanted(event) for event in found]


THREE: list[EventObject] = [
    {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "}, {"}},
    {"ph": "X", "name": '"}, {"', "ts": "17.5", "dur": 2.25, "args": {"deep": [{"a": {}}, {}]}},
    {"ph": "f", "name": "é", "id": 2**70, "cat": "async_npu", "ts": 1e-05, "bp": "e"},
]


@pytest.mark.parametrize("indent", [None, 4])
@pytest.mark.parametrize(
    "before", [None, {}, {"displayTimeUnit": "ns"}, {"otherData": {"a": [{}, {}]}}]
)
@pytest.mark.parametrize("marked", [False, True])
def test_every_block_size_from_one_byte_up(
    write: Callable[[bytes], Path], indent: int | None, before: EventObject | None, marked: bool
) -> None:
    layout = Layout(before, {"metadata": [{}, {}]}, indent, None, escapes=False, marked=marked)
    path = write(layout.document(THREE))
    wrong = [
        size
        for size in range(1, path.stat().st_size + 2)
        if outcome(path, size) != [wanted(event) for event in THREE]
    ]
    assert not wrong, f"block sizes that read something else: {wrong}"


def outcome(path: Path, block_bytes: int) -> list[EventObject] | str:
    """The events, or the message of the error."""
    try:
        return read(path, block_bytes)
    except SourceError as error:
        return str(error)


OTHERS: list[EventObject] = [{"ph": "i", "name": "mark"}, {"ph": "B", "args": 7}, {"name": "none"}]


@pytest.mark.parametrize("block_bytes", [1, 64, BLOCK_BYTES])
def test_phases_without_a_meaning_are_told_apart_from_wrong_events(
    write: Callable[[bytes], Path], block_bytes: int
) -> None:
    """They are counted as left out, so they must arrive; what is around them reads as ever."""
    found = [THREE[0], OTHERS[0], THREE[1], OTHERS[1], OTHERS[2], THREE[2]]
    read_as = [{"ph": "i"} if event in OTHERS else wanted(event) for event in found]
    assert read(write(PLAIN.document(found)), block_bytes) == read_as


plain_names = st.text("abcXM 0123()", max_size=8)


@given(
    st.lists(events, max_size=3),
    st.lists(
        st.fixed_dictionaries(
            {
                "ph": st.just("M"),
                "name": plain_names,
                "pid": st.integers(0, 2**40) | plain_names,
                "args": st.fixed_dictionaries({"name": plain_names}),
            },
            optional={"tid": st.integers(0, 2**40) | plain_names},
        ).flatmap(lambda event: st.permutations(list(event.items())).map(dict)),
        max_size=3,
    ),
    layouts,
)
def test_metadata_is_found_without_reading_the_rest(
    write: Callable[[bytes], Path],
    others: list[EventObject],
    found: list[EventObject],
    layout: Layout,
) -> None:
    """Whatever the order of the keys, and however large the file around them."""
    path = write(layout.document([*others, *found]))
    seen = [plain(event) for block in look_for_metadata(path) for event in block]
    assert [event for event in map(wanted, found) if event not in seen] == []


def test_a_long_head_before_the_events_is_read_over(write: Callable[[bytes], Path]) -> None:
    layout = Layout({"otherData": {"note": "x" * BLOCK_BYTES}}, {}, None, None, True, False)
    assert read(write(layout.document(THREE)), BLOCK_BYTES) == [wanted(event) for event in THREE]


def test_many_plain_keys_before_the_events_take_no_time(write: Callable[[bytes], Path]) -> None:
    """A search that tries every way to part the keys would not end."""
    before: EventObject = {f"key {number}": number for number in range(60)}
    before["otherData"] = {}
    path = write(Layout(before, {}, None, None, True, False).document(THREE))
    with deadline(5):
        assert read(path, BLOCK_BYTES) == [wanted(event) for event in THREE]


def refusal(path: Path, block_bytes: int = BLOCK_BYTES) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(path, block_bytes)
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    return caught.value


EIGHT: list[EventObject] = [
    {"ph": "X", "name": f"op {number}", "pid": 1, "ts": 12.5, "args": {"deep": [{"a": 1}, {}]}}
    for number in range(8)
]


LAST_OF_EIGHT = b'{"a": 1}, {}]}}'
"""How each of them ends."""


def salvaged(path: Path, block_bytes: int) -> tuple[list[EventObject], tuple[Omission, ...]]:
    """The events that can be read, and what was noted of the others."""
    damage = LossLog(path)
    found = [
        plain(event)
        for block in read_events(ascend_format().decoder, path, block_bytes, damage)
        for event in block
    ]
    return found, damage.omissions(0)


damaged = pytest.mark.parametrize("layout", [PLAIN, OBJECT], ids=["array", "object"])
in_blocks = pytest.mark.parametrize("block_bytes", [64, BLOCK_BYTES])


@pytest.mark.parametrize(
    ("layout", "marked", "block_bytes"),
    [
        pytest.param(PLAIN, False, 64, id="array"),
        pytest.param(PLAIN, True, BLOCK_BYTES, id="array with BOM"),
        pytest.param(OBJECT, False, BLOCK_BYTES, id="object"),
        pytest.param(OBJECT, True, 64, id="object with BOM"),
    ],
)
def test_truncated_files_give_all_whole_events(
    write: Callable[[bytes], Path], layout: Layout, marked: bool, block_bytes: int
) -> None:
    """An interrupted run is cut anywhere: all before is read, and its last byte is named."""
    whole = (BOM if marked else b"") + layout.document(EIGHT)
    for size in range(whole.index(b'{"ph"') + 1, len(whole)):
        path = write(whole[:size])
        complete = whole_events_in(whole[:size])
        if not complete:
            assert refusal(path, block_bytes).offset == size
            continue
        found, (lost,) = salvaged(path, block_bytes)
        assert found == [wanted(event) for event in EIGHT[:complete]]
        assert lost.reason.endswith(f"after {complete} whole events, the first at byte {size}")
        assert lost.loss
        behind = whole[:size].rpartition(LAST_OF_EIGHT)[2].strip(b" ,]")
        assert lost.rows == bool(behind)


def whole_events_in(text: bytes) -> int:
    """Events of EIGHT whose last brace is there."""
    return text.count(LAST_OF_EIGHT)


@damaged
@in_blocks
@pytest.mark.parametrize("garbage", [b";", b"", b"\0", b"}{", b'"', b"]", b"NaN", b"[[[[", b"{"])
def test_whole_events_around_a_damaged_one_are_read(
    write: Callable[[bytes], Path], layout: Layout, block_bytes: int, garbage: bytes
) -> None:
    """One event of eight is damaged, each of them once: the seven others are all there."""
    for number in range(8):
        whole = layout.document(EIGHT)
        at = whole.index(b'"op %d"' % number)
        found, lost = salvaged(write(whole[: at + 6] + garbage + whole[at + 8 :]), block_bytes)
        others = [wanted(event) for event in EIGHT if event is not EIGHT[number]]
        assert [event for event in found if event["name"] != f"op {number}"] == others
        assert lost
        assert all(one.loss for one in lost)


@damaged
@in_blocks
def test_a_damaged_place_is_named_by_its_offset(
    write: Callable[[bytes], Path], layout: Layout, block_bytes: int
) -> None:
    """Between two events nothing is lost, yet it is told."""
    whole = layout.document(EIGHT)
    commas = [at for at in range(len(whole)) if whole[at : at + 7] == b', {"ph"']
    assert len(commas) == 7
    for at in commas:
        found, (lost,) = salvaged(write(whole[:at] + b";" + whole[at + 1 :]), block_bytes)
        assert found == [wanted(event) for event in EIGHT]
        assert f"byte {at}" in lost.reason
        assert lost.rows == 1


@given(st.data())
def test_random_damage_is_told_and_never_a_traceback(
    write: Callable[[bytes], Path], data: st.DataObject
) -> None:
    """Whatever bytes replace a stretch of a trace, events before it are read."""
    whole = OBJECT.document(EIGHT)
    begin = data.draw(st.integers(whole.index(b'{"ph"') + 1, len(whole) - 2))
    end = data.draw(st.integers(begin, len(whole) - 1))
    path = write(whole[:begin] + data.draw(st.binary(max_size=60)) + whole[end:])
    complete = whole_events_in(whole[:begin])
    try:
        found, _ = salvaged(path, data.draw(st.integers(16, 4096)))
    except SourceError:
        assert not complete
        return
    assert found[:complete] == [wanted(event) for event in EIGHT[:complete]]


@pytest.mark.parametrize("event", [{"ph": 1}, {"ph": "X", "name": None}, ["X"], 7])
def test_events_of_another_shape_are_counted(write: Callable[[bytes], Path], event: Any) -> None:
    path = write(json.dumps([THREE[0], event, THREE[2]]).encode())
    found, (lost,) = salvaged(path, BLOCK_BYTES)
    assert found == [wanted(THREE[0]), wanted(THREE[2])]
    assert "events of another shape, the first at byte" in lost.reason
    assert (lost.rows, lost.loss) == (1, True)


def test_an_event_with_odd_args_keeps_its_time(write: Callable[[bytes], Path]) -> None:
    odd = {"ph": "X", "name": "op", "ts": "1.5", "args": {"Task Type": ["AI_CORE"]}}
    found, (lost,) = salvaged(write(json.dumps([odd]).encode()), BLOCK_BYTES)
    assert found == [{"ph": "X", "name": "op", "ts": "1.5"}]
    assert "args are of another shape" in lost.reason


def test_text_that_is_not_utf8_is_drawn_with_a_mark(write: Callable[[bytes], Path]) -> None:
    text = json.dumps([THREE[0], {"ph": "X", "name": "opA", "ts": "1"}]).encode()
    found, (lost,) = salvaged(write(text.replace(b"opA", b"op\xff")), BLOCK_BYTES)
    assert [event["name"] for event in found] == ["process_name", "op\N{REPLACEMENT CHARACTER}"]
    assert "not UTF-8" in lost.reason


MARK = "\N{REPLACEMENT CHARACTER}"


@in_blocks
@pytest.mark.parametrize(
    ("spelled", "drawn"),
    [
        (r"\ud83d", MARK),
        (r"\uDCff\udcfe", MARK * 2),
        (r"\ud83d\ud83d\ude00 \\\ud83d", f"{MARK}\N{GRINNING FACE} \\{MARK}"),
        (r"\ud83d\n\udE00\u0041\uD83D\uDE00", f"{MARK}\n{MARK}A\N{GRINNING FACE}"),
    ],
)
def test_half_a_character_is_drawn_with_a_mark(
    write: Callable[[bytes], Path], spelled: str, drawn: str, block_bytes: int
) -> None:
    """Python writes surrogates without another one for file names that are not UTF-8."""
    text = json.dumps([*THREE, {"ph": "X", "name": "opA", "ts": "1"}, *THREE])
    found, (lost,) = salvaged(write(text.replace("opA", spelled).encode()), block_bytes)
    assert found == [
        *map(wanted, THREE),
        {"ph": "X", "name": drawn, "ts": "1"},
        *map(wanted, THREE),
    ]
    assert (lost.rows, "not UTF-8" in lost.reason) == (1, True)


@in_blocks
@pytest.mark.parametrize("spelled", [r"\\ud83d", r"\\\\uDC00", r"\ud83d\ude00", r"\ud7ff\ue000"])
def test_whole_characters_are_drawn_as_they_are(
    write: Callable[[bytes], Path], spelled: str, block_bytes: int
) -> None:
    """Nor is anything told of text that follows on a backslash and is none of its own."""
    text = json.dumps([*THREE, {"ph": "X", "name": "opA", "ts": "1"}, {"ph": 1}])
    found, (lost,) = salvaged(write(text.replace("opA", spelled).encode()), block_bytes)
    assert found[-1]["name"] == json.loads(f'"{spelled}"')
    assert "another shape" in lost.reason


@in_blocks
def test_an_event_that_nests_too_deeply_is_counted(
    write: Callable[[bytes], Path], block_bytes: int
) -> None:
    deep = b'{"ph": "X", "name": "op 9", "args": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
    whole = PLAIN.document(EIGHT)
    found, lost = salvaged(write(b"[" + deep + b", " + whole[1:]), block_bytes)
    assert found == [wanted(event) for event in EIGHT]
    assert lost


@pytest.mark.parametrize(
    "data", [b"", b" \n", BOM, b"PK\x03\x04", b"not json", b'{"a": [1]}', b'"x"']
)
def test_files_that_are_no_trace_are_errors(write: Callable[[bytes], Path], data: bytes) -> None:
    """With the place where they are none, but for those in which there is nothing."""
    is_empty = not data.removeprefix(b"\xef\xbb\xbf").strip()
    assert (refusal(write(data)).offset is None) == is_empty


def test_a_missing_file_is_an_error_with_its_name(tmp_path: Path) -> None:
    assert refusal(tmp_path / "absent.json").offset is None


@pytest.mark.parametrize(
    "text", ["[]", "[ ]", '{"traceEvents": []}', '{"a": {}, "traceEvents": []}']
)
def test_a_trace_may_be_empty(write: Callable[[bytes], Path], text: str) -> None:
    assert read(write(text.encode()), BLOCK_BYTES) == []


def test_events_behind_nested_values_arrive_in_several_blocks(
    write: Callable[[bytes], Path],
) -> None:
    """PyTorch writes lists of devices and groups before the events; memory stays bounded."""
    before: EventObject = {
        "deviceProperties": [{"id": 0, "name": "}], {"}, {"id": 1}],
        "distributedInfo": {"rank": 0, "pg_config": [{"ranks": [0, 1]}] * 50},
    }
    found = [{"ph": "M", "name": f"name {number}"} for number in range(60_000)]
    path = write(Layout(before, {"late": [{}, {}]}, None, None, True, False).document(found))
    blocks = [len(block) for block in read_events(ascend_format().decoder, path)]
    assert sum(blocks) == len(found)
    assert max(blocks) * path.stat().st_size / len(found) < 3 * BLOCK_BYTES


def test_args_of_any_number_of_names_are_found(tmp_path: Path) -> None:
    """Arg names are numbered in a byte only if there are few enough."""
    names = [f"arg{number}" for number in range(300)]
    many = msgspec.defstruct("Many", [(name, int | None, None) for name in names])
    form = make_format(many, Other)
    path = tmp_path / "trace.json"
    args = {name: number for number, name in enumerate(names)}
    path.write_text(json.dumps([{"ph": "X", "name": "a", "ts": 1, "dur": 1, "args": args}]))
    ((event,),) = read_events(form.decoder, path)
    given = columns_of_decoded([event], form, StringPool()).args_at(np.arange(1))
    assert {name: given(name)[1].ids(-1).tolist() for name in names} == {
        name: [number] for name, number in args.items()
    }
