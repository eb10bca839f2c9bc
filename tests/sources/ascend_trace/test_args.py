"""Proves that columns hold what the args of events give, whatever their types and spellings."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.trace_json_reading import (
    ALL_LAYERS,
    BIG_IDS,
    GRAPH,
    HELD_COUNTS,
    RANK,
    SPELLED,
    STREAM,
    TINY_BLOCK,
    EventObject,
    Lane,
    Writer,
    columns_of,
    pieces,
    read,
    run_on,
)
from timeline.columns.columns import ColumnTable, Int64
from timeline.columns.strings import NO_TEXT
from timeline.layers import Layer
from timeline.records.not_given import NO_CONTEXT, NO_ID
from timeline.sources.decoders.exported_values import Value, number, text


@dataclass(frozen=True)
class Given:
    """A lane of a table, and the args that its columns are read from, by spelling.

    ids: column -> spellings, the first one given counts, and what stands for none.
    """

    lane: Lane
    table: str
    ids: Mapping[str, tuple[tuple[str, ...], int]]
    texts: Mapping[str, str]
    numbers: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def spellings(self) -> list[str]:
        spelled = {name for names, _ in self.ids.values() for name in names}
        return sorted(spelled | set(self.texts.values()) | set(self.numbers.values()))


GIVEN = (
    Given(
        Lane(1, 9, "Ascend Hardware", "a stream without number"),
        "tasks",
        {
            "stream": (("Physic Stream Id", "Stream Id"), NO_ID),
            "task": (("Task Id",), NO_ID),
            "batch": (("Batch Id",), NO_ID),
            "context": (("Subtask Id",), NO_CONTEXT),
            "graph": (("Model Id", "model id"), GRAPH),
            "connection": (("connection_id",), NO_ID),
        },
        {"task_type": "Task Type"},
    ),
    Given(
        Lane(2, 1, "HCCL", "Plane 0"),
        "planes",
        {
            "stream": (("stream id",), NO_ID),
            "task": (("task id",), NO_ID),
            "context": (("context id",), NO_CONTEXT),
            "graph": (("model id", "Model Id"), GRAPH),
            "source_rank": (("src rank",), NO_ID),
            "target_rank": (("dst rank",), NO_ID),
            "size_bytes": (("size(Byte)",), NO_ID),
        },
        {
            "notify": "notify_id",
            "transport": "transport type",
            "link": "link type",
            "data_type": "data type",
        },
        {"bandwidth": "bandwidth(GB/s)"},
    ),
    Given(
        Lane(2, 0, "HCCL", "Group 17 Communication"),
        "ops",
        {
            "graph": (("model id", "Model Id"), GRAPH),
            "connection": (("connection_id",), NO_ID),
            "count": (("count",), NO_ID),
        },
        {"data_type": "data_type", "algorithm": "alg_type"},
    ),
    Given(
        Lane(5, 100, "CANN"),
        "host",
        {"connection": (("connection_id",), NO_ID), "graph": (("Model Id",), GRAPH)},
        {"level": "level"},
    ),
)
args_values = st.one_of(
    st.none(),
    st.integers(-3, 9),
    st.integers(-(2**65), 2**65),
    st.integers(-(2**65), 2**65).map(str),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**30), 2**30).map(float),
    st.sampled_from(["N/A", "", " 7 ", "7.0", "1e3", "0x7", "-", "007", "AI_CORE", *BIG_IDS]),
)
one_kind = st.sampled_from(
    [st.integers(0, 9), st.integers(0, 9).map(str), st.floats(0, 9), args_values, args_values]
)
"""Whole columns of one type take other ways than mixed ones."""
ROWS = 4


@st.composite
def given_args(draw: st.DrawFn, table: Given) -> list[EventObject]:
    """The args of each event of a lane; some or all events lack an arg."""
    rows: list[EventObject] = [{} for _ in range(ROWS)]
    for name in table.spellings():
        giving = draw(st.sets(st.sampled_from(range(ROWS))))
        kind = draw(one_kind)
        for place in sorted(giving):
            rows[place][name] = draw(kind)
    return rows


@pytest.mark.sweep
@pytest.mark.parametrize("table", GIVEN, ids=lambda table: table.table)
@settings(max_examples=at_most(60))
@given(st.data())
def test_columns_hold_what_the_args_give(write: Writer, table: Given, data: st.DataObject) -> None:
    """Whatever the args of the other events of the lane are, and whichever are held together."""
    args = data.draw(given_args(table))
    lane = table.lane
    slices = [
        {**event, "args": given}
        for event, given in zip(run_on(lane.pid, lane.tid, ROWS), args, strict=True)
    ]
    with pieces(data.draw(st.sampled_from(HELD_COUNTS))):
        records = read(write(lane.names() + slices))
    columns = columns_of(getattr(records, table.table), records.strings)
    expected = expected_columns(table, args)
    assert {name: columns[name] for name in expected} == expected


def expected_columns(table: Given, rows: Sequence[EventObject]) -> dict[str, list[object]]:
    """The columns that the args decide, one value after the other."""
    made: dict[str, list[object]] = {}
    for name, (spellings, absent) in table.ids.items():
        made[name] = [expected_number(first_given(row, spellings), absent) for row in rows]
    for name, spelling in table.texts.items():
        made[name] = [expected_text(row.get(spelling), name) for row in rows]
    for name, spelling in table.numbers.items():
        made[name] = [expected_amount(row.get(spelling)) for row in rows]
    return made


def expected_amount(value: Value) -> float | str:
    """An amount that need not be whole, in quotes or not, or what stands for none among rows."""
    spelled = value.strip() if isinstance(value, str) else ""
    is_number = isinstance(value, (int, float)) or re.fullmatch(r"-?[0-9]+(\.0|e3)?", spelled)
    return float(value) if value is not None and is_number else "nan"


def first_given(args: EventObject, names: Sequence[str]) -> Value:
    return next((args[name] for name in names if args.get(name) is not None), None)


def expected_text(value: Value, column: str) -> str:
    """A text; a level of zero is none, and then the category counts, which is empty here."""
    spelled = text(value or None) if column == "level" else text(value)
    return "" if spelled in NO_TEXT else spelled


def expected_number(value: Value, absent: int) -> int:
    """The whole number that a value spells in decimal, if 64 bits hold it."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(-?)0*([0-9]+)\s*", value)
        if match is None or len(match[2]) > 19:
            return absent
        return expected_number(int(match[1] + match[2]), absent)
    if value is None or value != int(value) or not -(2**63) <= value < 2**63:
        return absent
    return int(value)


@given(args_values | st.text("-0123456789 .N²", max_size=22))
@example("--5")
@example("²")
@example("9" * 5000)
@example("0" * 5000)
@example(float(2**63))
@example(-float(2**63))
def test_a_number_is_what_its_digits_say_and_else_absent(value: Value) -> None:
    """Nothing that an export may write instead of a number stops the reader."""
    assert number(value, -7) == expected_number(value, -7)


def test_the_name_of_a_stream_is_better_than_its_args(write: Writer) -> None:
    event = {**run_on(1, 2)[0], "args": {"Physic Stream Id": 40, "Stream Id": 41}}
    assert read(write([*STREAM.names(), event])).tasks.stream.tolist() == [2]


def test_without_args_everything_is_absent_and_takes_no_memory(write: Writer) -> None:
    """Columns that no event of any piece gives stay constants."""
    lanes = [table.lane for table in GIVEN]
    found = [event for lane in lanes for event in lane.names()]
    found += [event for lane in lanes for event in run_on(lane.pid, lane.tid, 9)]
    with pieces(7):
        records = read(write(found))
    for table in GIVEN:
        rows: ColumnTable = getattr(records, table.table)
        assert len(rows) == 9
        for name, (_, absent) in table.ids.items():
            values: Int64 = getattr(rows, name)
            assert values.tolist() == [absent] * 9
            assert values.strides == (0,)


FIRST, LAST = run_on(1, 2, 2)


@pytest.mark.parametrize(
    ("wrong", "block_bytes"),
    [([1], TINY_BLOCK), ({"a": 1}, 1 << 19), (True, TINY_BLOCK), (True, 1 << 19)],
)
def test_an_arg_of_another_shape_costs_the_args_and_says_where(
    write: Writer, wrong: Any, block_bytes: int
) -> None:
    """Also where the events around it are fine, or of a phase that nobody knows."""
    for arg in sorted(SPELLED.keys() - {"FP Start", "BP End", "Input Dims"}):
        broken = {**FIRST, "args": {arg: wrong}}
        path = write([*STREAM.names(), FIRST, {"ph": "i"}, broken, LAST])
        offset = path.read_bytes().index(json.dumps(broken).encode())
        with pieces(1, block_bytes):
            records = read(path)
        assert len(records.tasks) == 3, arg
        (lost,) = (one for one in records.omissions if "args are of another shape" in one.reason)
        assert lost.reason.endswith(f"the first at byte {offset}"), arg
        assert (lost.rows, lost.rank, lost.loss) == (1, RANK, True), arg


@pytest.mark.parametrize("layers", [ALL_LAYERS, ALL_LAYERS - {Layer.COMMUNICATION}])
def test_args_that_nothing_shows_are_not_read(write: Writer, layers: frozenset[Layer]) -> None:
    """What is wrong with them costs nothing, and the columns that are shown stay the same."""
    lanes = [table.lane for table in GIVEN]
    found = [event for lane in lanes for event in lane.names()]
    for table in GIVEN:
        values = {spelled: value for value, spelled in enumerate(table.spellings())}
        on_lane = run_on(table.lane.pid, table.lane.tid, 2)
        found += [{**event, "args": values} for event in on_lane]
    every = read(write(found), layers=layers)
    shown = read(write(found), layers=layers, every_arg=False)
    assert len(every.planes) == len(shown.planes) == 2 * (Layer.COMMUNICATION in layers)
    hidden = {
        "tasks": {"batch", "connection"},
        "planes": {"stream", "notify", "transport", "data_type"},
        "ops": set[str](),
        "host": {"process", "level", "connection"},
    }
    for name, columns in hidden.items():
        ones = columns_of(getattr(every, name), every.strings)
        others = columns_of(getattr(shown, name), shown.strings)
        assert ones.keys() == others.keys()
        for column in ones.keys() - columns:
            assert ones[column] == others[column], column
    for event in found:
        event.get("args", {}).update({"transport type": [1], "Batch Id": {"a": 1}})
    assert not read(write(found), layers=layers, every_arg=False).omissions
