"""Proves that a trace makes the same records however it is cut into pieces while it is read."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
import sys
import tracemalloc
from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.profile_shelf import ProfileShelf
from tests.support.random_intervals import EPOCH_NS, SPAN_NS, Interval, intervals, laminar_intervals
from timeline.columns.columns import Codes, ColumnTable, Float64, Int64, Rows, column
from timeline.columns.constant import constant
from timeline.columns.strings import NO_TEXT, StringPool
from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.tables import (
    FLOAT_NOT_GIVEN,
    NO_CONTEXT,
    NO_GRAPH,
    NO_ID,
    NO_TIME,
    CommunicationOps,
    FlowEnd,
    HostEvents,
    Omission,
    PlaneTasks,
    Records,
    Spans,
    Steps,
    Tasks,
)
from timeline.sources.ascend_trace import reader
from timeline.sources.ascend_trace.events import AscendArgs, AscendEvent
from timeline.sources.ascend_trace.reader import HELD_EVENTS, TraceFiles, read_trace
from timeline.sources.common.counters import name_and_unit
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders import scanner
from timeline.sources.decoders.json_events import read_events
from timeline.sources.decoders.trace_events import Other, Value, number, text
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

EventObject = dict[str, Any]
Row = tuple[object, ...]
"""A row of a table, its codes spelled out, in the order of the columns."""
SeriesName = tuple[str, str, str]
"""Group, name and unit."""

ALL_LAYERS = frozenset(Layer)
HELD_COUNTS = (1, 7, 50, HELD_EVENTS)
TINY_BLOCK = 64
"""Bytes that hold less than an event, so that every event arrives in a block of its own."""
DEVICE, GRAPH, RANK = 3, 77, 5
SPELLED = {field.encode_name: field.name for field in msgspec.structs.fields(AscendArgs)}
TABLES = ("tasks", "planes", "ops", "steps", "parts", "host")


class Writer(Protocol):
    """Writes events to a file and tells where it is."""

    def __call__(self, events: Sequence[EventObject], name: str = "trace.json") -> Path: ...


@pytest.fixture(autouse=True, params=["scanned", "decoded"], scope="module")
def _reader(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything holds for both ways to read events."""
    if request.param == "scanned" and not scanner.is_compiled():
        pytest.skip("the package was built without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "decoded":
            patch.setattr(scanner, "Scanner", None)
        yield


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Writer:
    """Write events to a file, the same one each time."""
    directory = tmp_path_factory.mktemp("traces")

    def written(events: Sequence[EventObject], name: str = "trace.json") -> Path:
        path = directory / name
        path.write_text(json.dumps(events), encoding="utf-8")
        return path

    return written


@contextmanager
def pieces(held_events: int, block_bytes: int = TINY_BLOCK) -> Iterator[None]:
    """Read in blocks of a size; as many events are held, and as many rows in small parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "HELD_EVENTS", held_events)
        patch.setattr("timeline.columns.columns.JOINED_ROWS", held_events)
        patch.setattr(
            reader, "read_events", functools.partial(read_events, block_bytes=block_bytes)
        )
        yield


def read(*paths: Path, layers: frozenset[Layer] = ALL_LAYERS, every_arg: bool = True) -> Records:
    files, wanted = TraceFiles(paths, DEVICE, GRAPH), ReadRequest(layers, every_arg)
    return read_trace(files, RANK, StringPool(), wanted)


@dataclass(frozen=True)
class Content:
    """What records hold, without the order of rows and the numbers of strings and series."""

    tables: dict[str, list[Row]]
    flows: list[Row]
    counters: dict[SeriesName, list[tuple[int, float]]]
    omissions: tuple[Omission, ...]


def content(records: Records) -> Content:
    return Content(
        {name: in_order(rows_of(getattr(records, name), records.strings)) for name in TABLES},
        in_order(arrows_of(records, rows_of)),
        samples_of(records),
        records.omissions,
    )


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows sorted by their spelling, because absent values do not compare."""
    return sorted(rows, key=repr)


def rows_of(table: ColumnTable, strings: StringPool) -> list[Row]:
    return list(zip(*columns_of(table, strings).values(), strict=True))


def columns_of(table: ColumnTable, strings: StringPool) -> dict[str, list[object]]:
    """The values of each column; only columns of codes are 32 bits wide."""
    columns: dict[str, list[object]] = {}
    for field in dataclasses.fields(table):
        values = getattr(table, field.name)
        held = values.tolist()
        if values.dtype == np.int32:
            held = [strings[code] for code in held]
        columns[field.name] = ["nan" if value != value else value for value in held]
    return columns


def names_of(table: ColumnTable, strings: StringPool) -> list[Row]:
    """The name of each row."""
    codes: Codes = getattr(table, "name")  # noqa: B009 - only some tables have names
    return [(strings[code],) for code in codes.tolist()]


def arrows_of(
    records: Records, ends_of: Callable[[ColumnTable, StringPool], list[Row]]
) -> list[tuple[str, Row, Row]]:
    """Category, source and target of each arrow, its ends spelled by a function."""
    tables = {
        FlowEnd.HOST: records.host,
        FlowEnd.TASK: records.tasks,
        FlowEnd.OP: records.ops,
        FlowEnd.PLANE: records.planes,
    }
    spelled = {kind: ends_of(table, records.strings) for kind, table in tables.items()}
    return [
        (
            records.strings[category],
            spelled[FlowEnd(source_kind)][source],
            spelled[FlowEnd(target_kind)][target],
        )
        for category, source_kind, source, target_kind, target in zip(
            records.flows.category.tolist(),
            records.flows.source_kind.tolist(),
            records.flows.source_row.tolist(),
            records.flows.target_kind.tolist(),
            records.flows.target_row.tolist(),
            strict=True,
        )
    ]


def samples_of(records: Records) -> dict[SeriesName, list[tuple[int, float]]]:
    """The samples of each series, sorted."""
    names: list[Any] = rows_of(records.series, records.strings)
    held: dict[SeriesName, list[tuple[int, float]]] = {name: [] for name in names}
    assert len(held) == len(names), "two series of the same name"
    for time_ns, series, value in zip(
        records.samples.time_ns.tolist(),
        records.samples.series.tolist(),
        records.samples.value.tolist(),
        strict=True,
    ):
        held[names[series]].append((time_ns, value))
    return {name: sorted(samples) for name, samples in held.items()}


def process(pid: object, name: object) -> EventObject:
    return {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}


def thread(pid: object, tid: object, name: object) -> EventObject:
    return {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def is_metadata(event: EventObject) -> bool:
    return bool(event["ph"] == "M")


@dataclass(frozen=True)
class Lane:
    """A thread of a trace, and the names it has in the end."""

    pid: object
    tid: object
    process: str | None = None
    thread: str | None = None

    def names(self) -> list[EventObject]:
        named = [] if self.process is None else [process(self.pid, self.process)]
        return named + ([] if self.thread is None else [thread(self.pid, self.tid, self.thread)])


STREAM = Lane(1, 2, "Ascend Hardware", "Stream 2")
LANES = (
    STREAM,
    Lane(1, 3, "Ascend Hardware", "Stream 3"),
    Lane(1, 4, "Ascend Hardware", "Step Trace(Model ID:1)"),
    Lane(1, 9, "Ascend Hardware", "Events"),  # its rows name their stream
    Lane(2, 0, "HCCL", "Group 17 Communication"),
    Lane(2, 1, "HCCL", "Plane 0"),
    Lane(2, 2, "HCCL", "Plane 1"),
    Lane(2, 3, "HCCL", "Group 18 Communication"),
    Lane(2, 4, "HCCL", "Plane 0"),
    Lane(3, 0, "Communication", "Plane 0"),
    Lane(3, "7", "Communication", "Communication Kernel"),
    Lane(4, 1, "Step Trace", "Model ID: 4"),
    Lane(5, 100, "CANN", "Thread 100"),
    Lane(5, 101, "CANN"),
    Lane(7 << 22, 100, "Python", "main"),
    Lane(6, 0, "Overlap Analysis", "Computing"),
    Lane(8, 1),
    Lane("shell", "a", None, "unnamed process"),
)
COUNTING = (Lane(20, 0, "HBM"), Lane(21, 0, "HBM"), Lane(22, 0))
OTHER_NAMES = (
    process(1, "CANN"),
    process(2, "Ascend Hardware"),
    process(3, "HCCL"),
    process(5, "Ascend Hardware"),
    process(8, "Communication"),
    process(21, "DDR"),
    process(5, None),
    {"ph": "M", "name": "process_sort_index", "pid": 1, "args": {"sort_index": 7}},
    {"ph": "M", "name": "thread_name", "pid": 1, "tid": 2},
    thread(1, 3, "Step Trace(Model ID:2)"),
    thread(1, 9, "Stream 9"),
    thread(2, 0, "Communication Kernel"),
    thread(2, 2, "Group 19 Communication"),
    thread(2, 3, "Plane 2"),
    thread(3, 0, "Plane 5"),
    thread(5, 101, "Stream 1"),
    thread(8, 1, "Plane 3"),
)
"""Names that contradict those of the lanes, or fill in what they lack."""

LAUNCHING = ("HostToDevice", "async_npu")
"""Categories of flows that tell when a task was launched."""
CATEGORIES = (*LAUNCHING, "fwdbwd", "Data_aug Bound")
"""The last one draws a number of the step trace: no flow at all."""
BIG_IDS = (2**63, 2**64, 2**64 + 1, -(2**64))
moments = st.one_of(
    st.integers(0, 9),
    st.integers(0, 9).map("{}.000".format),
    st.sampled_from([2.5, "3.25", 1e-3, "N/A"]),
)
ids = st.sampled_from([0, 4, -1, "4", " 6 ", 4.0, 4.5, "N/A", None, *BIG_IDS, str(2**64)])
slice_names = st.sampled_from(
    ["MatMul", "Iteration 3", "Iteration 4", "Reduce_3_0", "GetNext_3_1", "ProfilerStep#2", ""]
)
lane_args = st.dictionaries(st.sampled_from(sorted(SPELLED)), ids, max_size=6)
connected_args = st.builds(
    lambda args, connection: {**args, "connection_id": connection},
    lane_args,
    st.sampled_from([5, 6, "6"]),
)


def placed(phase: str, lanes: Sequence[Lane], **fields: Any) -> st.SearchStrategy[EventObject]:
    """Events of a phase on any of the lanes."""
    return st.builds(
        lambda lane, event: {"ph": phase, "pid": lane.pid, "tid": lane.tid, **event},
        st.sampled_from(lanes),
        st.fixed_dictionaries({"ts": moments, **fields}),
    )


slices = placed("X", LANES, name=slice_names, dur=moments, args=lane_args | connected_args)
flow_ends = st.one_of(
    [
        placed(
            phase,
            LANES,
            cat=st.sampled_from(CATEGORIES),
            id=st.sampled_from([0, 1, "1", 2**64 + 1, str(2**64 + 1), 2**70, "a"]),
        )
        for phase in "stf"
    ]
)
counters = placed(
    "C",
    COUNTING,
    name=st.sampled_from(["Read", "DDR"]),
    args=st.dictionaries(
        st.sampled_from(["Read(MB/s)", "KB", "value", "core_id", "stream_id"]),
        st.sampled_from([0, 1, "1", 2.5, True, None, 2**64]),
        max_size=3,
    ),
)
others: st.SearchStrategy[EventObject] = st.sampled_from(
    [{"ph": "i", "name": "mark"}, {"ph": "B", "args": 7}]
)


@dataclass(frozen=True)
class Trace:
    """Events, the metadata that names their lanes, and an order in which the two are mixed."""

    events: list[EventObject]
    metadata: list[EventObject]
    mixed: list[EventObject]
    cut: int
    """Where the mixed order is cut into two files."""


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Events of all phases, on lanes that are named once, several times, or not at all."""
    # Slices twice: without them there is nothing to bind flows to.
    events = draw(st.lists(slices | slices | flow_ends | counters | others, max_size=24))
    names = [event for lane in LANES + COUNTING for event in lane.names()]
    nameless = draw(st.sets(st.integers(0, len(names) - 1), max_size=2))
    metadata = [
        *draw(st.lists(st.sampled_from(OTHER_NAMES), max_size=3)),
        *(event for place, event in enumerate(names) if place not in nameless),
        *draw(st.lists(st.sampled_from(OTHER_NAMES), max_size=2)),
    ]
    places = st.lists(
        st.integers(0, len(events)), min_size=len(metadata), max_size=len(metadata)
    ).map(sorted)
    mixed = list(events)
    for place, event in reversed(list(zip(draw(places), metadata, strict=True))):
        mixed.insert(place, event)
    return Trace(events, metadata, mixed, draw(st.integers(0, len(mixed))))


@settings(max_examples=150)
@given(traces())
def test_records_depend_neither_on_pieces_nor_on_the_place_of_names(
    write: Writer, trace: Trace
) -> None:
    """Names first and everything held until the end is the plain case that all others equal."""
    plain = content(read(write(trace.metadata + trace.events)))
    for order in (trace.metadata + trace.events, trace.events + trace.metadata, trace.mixed):
        path = write(order)
        for held_events in HELD_COUNTS:
            with pieces(held_events):
                assert content(read(path)) == plain


@settings(max_examples=100)
@given(traces())
def test_records_do_not_depend_on_how_an_export_is_sliced(write: Writer, trace: Trace) -> None:
    """Files of one export share their names, wherever these lie."""
    plain = content(read(write(trace.mixed)))
    first = write(trace.mixed[: trace.cut], "slice_0.json")
    second = write(trace.mixed[trace.cut :], "slice_1.json")
    for held_events in HELD_COUNTS:
        with pieces(held_events):
            assert content(read(first, second)) == plain


@settings(max_examples=60)
@given(traces())
def test_args_that_are_not_wanted_are_the_only_ones_absent(write: Writer, trace: Trace) -> None:
    """A column is as it would be otherwise, or it holds nothing."""
    path = write(trace.mixed)
    records, lean = read(path), read(path, every_arg=False)
    for name in TABLES:
        found = columns_of(getattr(records, name), records.strings)
        for own, held in columns_of(getattr(lean, name), lean.strings).items():
            assert held == found[own] or set(held) <= {NO_ID, NO_CONTEXT, ""}, own
    assert Multiset(arrows_of(lean, names_of)) == Multiset(arrows_of(records, names_of))
    assert samples_of(lean) == samples_of(records)
    assert lean.omissions == records.omissions


EXAMPLES = ("torch-text", "mindstudio", "mindspore-2.1")


@pytest.mark.parametrize("layout", EXAMPLES)
def test_example_traces_read_alike_in_any_pieces(
    shelf: ProfileShelf, write: Writer, layout: str
) -> None:
    """The traces of a whole profile, with their names first, last, and spread over the file."""
    capture = shelf.get(layout).captures[0]
    documents = [json.loads(path.read_bytes()) for path in sorted(capture.rglob("*.json"))]
    found = [document for document in documents if isinstance(document, list)]
    assert found
    for events in found:
        names = [event for event in events if is_metadata(event)]
        rest = [event for event in events if not is_metadata(event)]
        plain = content(read(write(names + rest)))
        assert any(plain.tables.values())
        for order in (names + rest, rest + names, spread(names, rest)):
            path = write(order)
            for held_events in HELD_COUNTS:
                with pieces(held_events, block_bytes=256):
                    assert content(read(path)) == plain


def spread(names: Sequence[EventObject], rest: Sequence[EventObject]) -> list[EventObject]:
    """The names at equal distances between the other events."""
    every = len(rest) // len(names) + 1
    chunks = [list(rest[place : place + every]) for place in range(0, len(rest), every)]
    return [
        event
        for name, chunk in itertools.zip_longest(names, chunks)
        for event in (*(chunk or ()), *([name] if name else ()))
    ]


@pytest.mark.parametrize("layout", EXAMPLES)
def test_whole_captures_read_alike_in_any_pieces(shelf: ProfileShelf, layout: str) -> None:
    """With all that a source does around the reader: several files, kernel tables, step traces."""
    source = discover(shelf.get(layout).path).sources[0]

    def found() -> Content:
        return content(source.read(ReadRequest(ALL_LAYERS)))

    plain = found()
    for held_events in HELD_COUNTS:
        with pieces(held_events, block_bytes=256):
            assert found() == plain


def run_on(pid: object, tid: object, count: int = 3) -> list[EventObject]:
    """Slices on one lane, one after the other."""
    return [
        {"ph": "X", "pid": pid, "tid": tid, "name": f"op {place}", "ts": place, "dur": 1}
        for place in range(count)
    ]


LATE_NAMES: dict[str, list[EventObject]] = {
    "a host process turns out to be the hardware": [
        process(1, "CANN"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        process(1, "Ascend Hardware"),
        *run_on(1, 2),
    ],
    "the hardware turns out to be a host process": [
        process(1, "Ascend Hardware"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        process(1, "Python"),
        *run_on(1, 2),
    ],
    "the thread of a host process is named late": [
        process(1, "CANN"),
        *run_on(1, 2),
        thread(1, 2, "Thread 2"),
        *run_on(1, 2),
    ],
    "a process and then its thread are named late": [
        *run_on(1, 2),
        process(1, "CANN"),
        *run_on(1, 2),
        process(1, "Ascend Hardware"),
        *run_on(1, 2),
        thread(1, 2, "Stream 2"),
    ],
    "a stream gets another number": [
        process(1, "Ascend Hardware"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        thread(1, 2, "Stream 3"),
        *run_on(1, 2),
    ],
    "a stream turns out to be a step trace": [
        process(1, "Ascend Hardware"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        thread(1, 2, "Step Trace(Model ID:1)"),
        {**run_on(1, 2)[0], "name": "Iteration 1"},
    ],
    "the group of a plane is named after the plane": [
        process(1, "HCCL"),
        thread(1, 5, "Plane 0"),
        *run_on(1, 5),
        thread(1, 1, "Group 7 Communication"),
        *run_on(1, 5),
    ],
    "a plane is of a named group only for a while": [
        process(1, "HCCL"),
        thread(1, 5, "Plane 0"),
        *run_on(1, 5),
        thread(1, 1, "Group 7 Communication"),
        *run_on(1, 5),
        thread(1, 3, "Communication Kernel"),
        *run_on(1, 5),
    ],
    "a process is called something else for a while": [
        process(1, "CANN"),
        thread(1, 2, "Stream 2"),
        *run_on(1, 2),
        process(1, "Ascend Hardware"),
        *run_on(1, 2),
        process(1, "CANN"),
        *run_on(1, 2),
    ],
}


@pytest.mark.parametrize("events", LATE_NAMES.values(), ids=LATE_NAMES)
@pytest.mark.parametrize("held_events", HELD_COUNTS)
def test_a_late_name_counts_as_if_it_had_come_first(
    write: Writer, events: list[EventObject], held_events: int
) -> None:
    """Of several names of one lane the last counts, also for what was read before it."""
    slices = [event for event in events if not is_metadata(event)]
    names = {
        (event["name"], event["pid"], event.get("tid")): event
        for event in events
        if is_metadata(event)
    }
    plain = content(read(write([*names.values(), *slices])))
    assert sum(len(rows) for rows in plain.tables.values())
    with pieces(held_events):
        assert content(read(write(events))) == plain


@pytest.mark.parametrize(
    ("events", "passes"),
    [
        pytest.param([*STREAM.names(), *run_on(1, 2, 20)], 1, id="names first"),
        pytest.param([*run_on(1, 2, 20), *STREAM.names()], 1, id="names last"),
        pytest.param(LATE_NAMES["a stream gets another number"], 2, id="renamed"),
        pytest.param(LATE_NAMES["a process is called something else for a while"], 2, id="twice"),
    ],
)
def test_only_lanes_that_were_misread_are_worth_a_second_pass(
    write: Writer, events: list[EventObject], passes: int
) -> None:
    """Reading is most of the time of an export, so it is not done twice without need."""
    path, opened = write(events), []

    def counted(decoder: Any, path: Path, damage: LossLog, scan: Any) -> Iterator[Any]:
        opened.append(path)
        return read_events(decoder, path, TINY_BLOCK, damage, scan=scan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "HELD_EVENTS", 1)
        patch.setattr(reader, "read_events", counted)
        read(path)
    assert opened == [path] * passes


GROUP = "Group 17 Communication"
CALLS = (Lane(5, 100, "CANN", "Thread 100"), Lane(9, 200, "Python", "main"))
DEVICE_LANES = (
    STREAM,
    Lane(1, 3, "Ascend Hardware", "Stream 3"),
    Lane(2, 0, "HCCL", GROUP),
    Lane(2, 1, "HCCL", "Plane 0"),
)
NOWHERE = (Lane(6, 0, "Overlap Analysis", "Computing"), Lane(2, 9, "HCCL", "Plane 3"))
"""Lanes without rows: one is recomputed, the other has no events."""


@dataclass(frozen=True)
class Call:
    """An interval of a lane that flows may bind to; its name is known nowhere else."""

    lane: Lane
    name: str
    span: Interval
    connection: int | None

    def event(self) -> EventObject:
        start_ns, end_ns = self.span
        args = {} if self.connection is None else {"connection_id": self.connection}
        return {
            "ph": "X",
            "pid": self.lane.pid,
            "tid": self.lane.tid,
            "name": self.name,
            "ts": microseconds(start_ns),
            "dur": microseconds(end_ns - start_ns),
            "args": args,
        }


@dataclass(frozen=True)
class End:
    """A flow event."""

    phase: str
    lane: Lane
    time_ns: int
    category: str
    flow: int | str

    def event(self) -> EventObject:
        return {
            "ph": self.phase,
            "pid": self.lane.pid,
            "tid": self.lane.tid,
            "ts": microseconds(self.time_ns),
            "cat": self.category,
            "id": self.flow,
        }


def microseconds(time_ns: int) -> str:
    """Microseconds with three decimals, as exports write nanoseconds."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


@dataclass(frozen=True)
class Scene:
    """Calls, tasks and flow ends in the order of their file."""

    parts: list[Call | End]

    def document(self) -> list[EventObject]:
        names = [event for lane in CALLS + DEVICE_LANES + NOWHERE for event in lane.names()]
        return names + [part.event() for part in self.parts]

    @property
    def calls(self) -> list[Call]:
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def ends(self) -> list[End]:
        ends = [part for part in self.parts if isinstance(part, End)]
        return [end for end in ends if end.category != CATEGORIES[-1]]

    def pairs(self) -> list[tuple[End | None, End | None]]:
        """Of one flow, the first end with the first start and so on; then with the last start."""
        flows: dict[tuple[str, str], tuple[list[End], list[End]]] = defaultdict(lambda: ([], []))
        for end in self.ends:
            flows[end.category, str(end.flow)][end.phase != "s"].append(end)
        found: list[tuple[End | None, End | None]] = []
        for starts, finishes in flows.values():
            for place, finish in enumerate(finishes):
                found.append((starts[min(place, len(starts) - 1)] if starts else None, finish))
            found += [(start, None) for start in starts[len(finishes) :]]
        return found

    def bound(self, end: End | None) -> Call | None:
        """The row an end lies in: what starts there; for a start, the innermost open call."""
        if end is None:
            return None
        own = [call for call in self.calls if call.lane == end.lane]
        starting = [call for call in own if call.span[0] == end.time_ns]
        if starting and (end.phase != "s" or end.lane not in CALLS):
            return starting[0]
        return innermost_call(own, end.time_ns) if end.lane in CALLS else None

    def drawn(self) -> list[tuple[str, Call, Call]]:
        """The arrows of flows of which both ends are bound."""
        return [
            (start.category, source, target)
            for start, finish in self.pairs()
            if start and (source := self.bound(start)) and (target := self.bound(finish))
        ]

    def connected(self) -> list[tuple[str, Call, Call]]:
        """Arrows that flows do not draw, from calls of CANN to what shares their connection.

        Tasks that share it with a communication op belong to the op.
        """
        launched = {
            target.name for category, _, target in self.drawn() if category == "HostToDevice"
        }
        sources = [call for call in self.calls if call.lane.process == "CANN"]
        ops = [call for call in self.calls if call.lane.thread == GROUP]
        of_ops = {op.connection for op in ops}
        tasks = [call for call in self.calls if call.lane.process == STREAM.process]
        targets = [*ops, *(task for task in tasks if task.connection not in of_ops)]
        return [
            ("HostToDevice", source, target)
            for source in sources
            for target in targets
            if source.connection is not None
            and source.connection == target.connection
            and target.name not in launched
        ]

    def half(self) -> int:
        """How many flows are not drawn although no connection draws them either."""
        added = self.connected()
        sources = {source.name for _, source, _ in added}
        targets = {target.name for _, _, target in added}
        bound = [(self.bound(start), self.bound(finish)) for start, finish in self.pairs()]
        return sum(
            not (source and target)
            and (source is None or source.name not in sources)
            and (target is None or target.name not in targets)
            for source, target in bound
        )


def innermost_call(calls: Sequence[Call], time_ns: int) -> Call | None:
    """The last to begin of the calls that are open, the shortest of those, the last of equal ones.

    A call without length is open at its own moment, where nothing longer begins.
    """

    def depth(place: int) -> tuple[int, int, int]:
        start_ns, end_ns = calls[place].span
        return start_ns, -end_ns, place

    places = range(len(calls))
    inside = [place for place in places if calls[place].span[0] <= time_ns < calls[place].span[1]]
    marks = [place for place in places if calls[place].span == (time_ns, time_ns)]
    if marks and not any(calls[place].span[0] == time_ns for place in inside):
        return calls[marks[-1]]
    return calls[max(inside, key=depth)] if inside else None


FLOW_IDS = (0, 1, "1", 2**64 + 1, str(2**64 + 1), 2**64 + 2)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Nested calls on host threads, any intervals on the device, flow ends at such moments."""
    spans = [(lane, draw(laminar_intervals())) for lane in CALLS]
    spans += [(lane, draw(intervals(most=4))) for lane in DEVICE_LANES]
    connections = st.sampled_from([None, 1, 2, 2**40])
    numbers = itertools.count()
    calls = [
        Call(lane, f"call {next(numbers)}", span, draw(connections))
        for lane, held in spans
        for span in held
    ]
    ends = draw(
        st.lists(
            st.builds(
                End,
                st.sampled_from("sstf"),
                st.sampled_from([*CALLS, *DEVICE_LANES, *NOWHERE]),
                st.integers(EPOCH_NS, EPOCH_NS + SPAN_NS),
                st.sampled_from(CATEGORIES),
                st.sampled_from(FLOW_IDS),
            )
            | joining(calls),
            max_size=16,
        )
    )
    return Scene(in_order_of_calls(draw(st.permutations([*calls, *ends]))))


def in_order_of_calls(parts: Sequence[Call | End]) -> list[Call | End]:
    """The same with host calls in order of time, as profilers write them.

    Then the last call in the file is the latest one, whichever of the two a reader goes by.
    """
    on_host = [isinstance(part, Call) and part.lane in CALLS for part in parts]
    calls = [part for part in parts if isinstance(part, Call) and part.lane in CALLS]
    later = iter(sorted(calls, key=lambda call: call.span[0]))
    return [next(later) if is_call else part for part, is_call in zip(parts, on_host, strict=True)]


def joining(calls: Sequence[Call]) -> st.SearchStrategy[End]:
    """Flow ends where a call begins, most of which therefore bind."""
    if not calls:
        return st.nothing()
    return st.builds(
        lambda phase, call, category, flow: End(phase, call.lane, call.span[0], category, flow),
        st.sampled_from("sftf"),
        st.sampled_from(calls),
        st.sampled_from(CATEGORIES),
        st.sampled_from(FLOW_IDS[:2]),
    )


@given(scenes(), st.sampled_from(HELD_COUNTS))
def test_flows_join_the_rows_that_a_plain_search_finds(
    write: Writer, scene: Scene, held_events: int
) -> None:
    """Ids beyond 64 bits, used again, or without their other end, which counts as half.

    Connections add arrows that flows do not draw.
    """
    with pieces(held_events):
        records = read(write(scene.document()))
    wanted = [
        (category, (source.name,), (target.name,))
        for category, source, target in [*scene.drawn(), *scene.connected()]
    ]
    assert Multiset(arrows_of(records, names_of)) == Multiset(wanted)
    half = scene.half()
    assert [omission.rows for omission in records.omissions] == ([half] if half else [])
    assert not any(omission.loss for omission in records.omissions)


@given(scenes())
def test_arrows_that_are_not_asked_for_leave_out_nothing(write: Writer, scene: Scene) -> None:
    """Launch times come from flows all the same."""
    path = write(scene.document())
    records, without = read(path), read(path, layers=ALL_LAYERS - {Layer.ARROWS})
    assert not len(without.flows)
    assert without.omissions == ()
    assert content(without).tables == content(records).tables


@given(scenes(), st.sampled_from(HELD_COUNTS))
def test_launch_times_are_those_that_a_plain_search_finds(
    write: Writer, scene: Scene, held_events: int
) -> None:
    """The last host call in the file with the connection of a task, else the last launch flow."""
    with pieces(held_events):
        records = read(write(scene.document()))
    flow_ns: dict[str, int] = {}
    for start, finish in scene.pairs():
        target = scene.bound(finish)
        if start and target and start.category in LAUNCHING:
            flow_ns[target.name] = max(start.time_ns, flow_ns.get(target.name, start.time_ns))
    called_ns: dict[int | None, int] = {
        call.connection: call.span[0]
        for call in scene.calls
        if call.lane in CALLS and call.connection is not None
    }
    wanted = {
        call.name: called_ns.get(call.connection, flow_ns.get(call.name, NO_TIME))
        for call in scene.calls
        if call.lane in DEVICE_LANES[:3]
    }
    assert launches_of(records.tasks, records.strings) | launches_of(
        records.ops, records.strings
    ) == {(name,): time_ns for name, time_ns in wanted.items()}
    assert (records.planes.launch_ns == NO_TIME).all()


@given(scenes())
def test_launch_times_do_not_depend_on_the_layers(write: Writer, scene: Scene) -> None:
    """They decide to which step a task belongs, also where no host call is drawn."""
    path = write(scene.document())
    records, bare = read(path), read(path, layers=frozenset())
    assert content(bare).tables["tasks"] == content(records).tables["tasks"]
    assert content(bare).tables["ops"] == content(records).tables["ops"]


def launches_of(table: Tasks | CommunicationOps, strings: StringPool) -> dict[Row, int]:
    return dict(zip(names_of(table, strings), table.launch_ns.tolist(), strict=True))


@pytest.mark.parametrize("category", CATEGORIES)
def test_flows_of_two_categories_tell_when_tasks_were_launched(
    write: Writer, category: str
) -> None:
    """The latest of several does, where no host call has the connection of the task."""
    starts = [End("s", CALLS[0], time_ns, category, time_ns) for time_ns in (4, 7, 5)]
    ends = [End("f", STREAM, 9000, category, start.flow) for start in starts]
    scene = Scene([*starts, *ends, Call(STREAM, "task", (9000, 9500), 3)])
    launch_ns = read(write(scene.document())).tasks.launch_ns.tolist()
    assert launch_ns == [7 if category in LAUNCHING else NO_TIME]


def call_on(lane: Lane, ts: int, connection: int) -> EventObject:
    """A slice that names its connection."""
    return {**run_on(lane.pid, lane.tid, 1)[0], "ts": ts, "args": {"connection_id": connection}}


@pytest.mark.parametrize("held_events", HELD_COUNTS)
def test_of_calls_on_two_threads_the_last_in_the_file_launched_the_task(
    write: Writer, held_events: int
) -> None:
    """Not the last of the thread that the file mentions last."""
    one, two = CALLS
    calls = [call_on(two, 1, 4), call_on(one, 2, 5), call_on(two, 3, 5)]
    names = [event for lane in (*CALLS, STREAM) for event in lane.names()]
    with pieces(held_events):
        records = read(write([*names, *calls, call_on(STREAM, 9, 5)]))
    assert records.tasks.launch_ns.tolist() == [3000]


values = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(-1e12, 1e12),
    st.booleans(),
    st.none(),
    st.sampled_from(["", "7", "N/A"]),
    st.sampled_from([2**63, 2**64 + 1, [1], [], [[2]], {"a": 1}]),
)
counter_ids = st.sampled_from([0, 1, "1", 2, "x", 2**70])
readings = st.builds(
    lambda pid, name, time_us, held, told: {
        "ph": "C",
        "pid": pid,
        "name": name,
        "ts": time_us,
        "args": {**told, **held},
    },
    st.sampled_from([20, 21, 22, "20"]),
    st.sampled_from(["HBM 0/Read", "DDR"]),
    st.integers(0, 5),
    st.dictionaries(st.sampled_from(["Read(MB/s)", "KB", "paid"]), values, max_size=3),
    st.dictionaries(st.sampled_from(["core_id", "hccs_id"]), counter_ids, max_size=2),
)
COUNTER_NAMES = [process(20, "HBM"), process(21, "HBM")]


@given(st.lists(readings, max_size=10), st.sampled_from(HELD_COUNTS))
def test_counters_are_those_that_a_plain_loop_finds(
    write: Writer, found: list[EventObject], held_events: int
) -> None:
    """Only numbers count, processes of one name share series, and ids tell series apart."""
    with pieces(held_events):
        records = read(write(found + COUNTER_NAMES))
    assert records.samples.value.ndim == 1
    assert samples_of(records) == expected_samples(found)


def expected_samples(found: Sequence[EventObject]) -> dict[SeriesName, list[tuple[int, float]]]:
    """The samples of each series, one event after the other."""
    made: dict[SeriesName, list[tuple[int, float]]] = defaultdict(list)
    for event in found:
        group = "HBM" if event["pid"] in (20, 21) else f"Process {event['pid']}"
        args: EventObject = event["args"]
        held = {name: value for name, value in args.items() if not name.endswith("_id")}
        label = "".join(f" {name[:-3]} {value}" for name, value in args.items() if name not in held)
        for arg, value in held.items():
            if isinstance(value, (int, float)):
                name, unit = name_and_unit(event["name"], arg, len(held))
                made[group, name + label, unit].append((event["ts"] * 1000, float(value)))
    return {name: sorted(samples) for name, samples in made.items()}


def reading(args: EventObject, pid: object = 20) -> EventObject:
    return {"ph": "C", "pid": pid, "name": "Read", "ts": 1, "args": args}


@pytest.mark.parametrize("value", [None, "7", [1], [1, 2], [], [[2]], {"a": 1}, {}], ids=json.dumps)
@pytest.mark.parametrize("beside", [[], [2, True]], ids=["alone", "beside numbers"])
def test_what_is_no_number_is_no_sample(write: Writer, value: Any, beside: list[Any]) -> None:
    """Each kind of value alone, and in one piece with a number."""
    found = [reading({"value": one}) for one in [value, *beside]]
    records = read(write(found + COUNTER_NAMES))
    assert samples_of(records) == (
        {("HBM", "Read", ""): [(1000, 1.0), (1000, 2.0)]} if beside else {}
    )


def test_booleans_are_samples(write: Writer) -> None:
    records = read(write([reading({"value": True}), reading({"value": False})]))
    assert samples_of(records) == {("Process 20", "Read", ""): [(1000, 0.0), (1000, 1.0)]}


def test_an_id_may_be_a_number_or_its_text(write: Writer) -> None:
    """Both give one series, also for processes that only share their name."""
    found = [
        reading({"core_id": 1, "value": 5}),
        reading({"core_id": "1", "value": 6}),
        reading({"core_id": 1, "value": 7}, pid=21),
        reading({"core_id": 2, "value": 8}),
    ]
    assert samples_of(read(write(found + COUNTER_NAMES))) == {
        ("HBM", "Read core 1", ""): [(1000, 5.0), (1000, 6.0), (1000, 7.0)],
        ("HBM", "Read core 2", ""): [(1000, 8.0)],
    }


@pytest.mark.parametrize("core", [[1], {"a": 1}, None], ids=json.dumps)
def test_an_id_of_any_shape_tells_series_apart(write: Writer, core: Any) -> None:
    """An id is only a part of a label, so nothing about it can be wrong."""
    records = read(write([reading({"core_id": core, "value": 5}), *COUNTER_NAMES]))
    assert samples_of(records) == {("HBM", f"Read core {core}", ""): [(1000, 5.0)]}


@pytest.mark.parametrize("held_events", HELD_COUNTS)
def test_ids_that_only_compare_equal_stay_apart(write: Writer, held_events: int) -> None:
    """Whichever of them are read in one piece."""
    cores = [1, True, 1.0, 0, False]
    found = [reading({"core_id": core, "value": place}) for place, core in enumerate(cores)]
    with pieces(held_events):
        records = read(write(found + COUNTER_NAMES))
    assert samples_of(records) == {
        ("HBM", f"Read core {core}", ""): [(1000, float(place))] for place, core in enumerate(cores)
    }


def test_counters_that_are_not_asked_for_are_not_read(write: Writer) -> None:
    path = write([reading({"value": 5}), *COUNTER_NAMES, *STREAM.names(), *run_on(1, 2)])
    records = read(path, layers=ALL_LAYERS - {Layer.COUNTERS})
    assert (len(records.series), len(records.samples)) == (0, 0)
    assert content(records).tables == content(read(path)).tables


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


@pytest.mark.parametrize("table", GIVEN, ids=lambda table: table.table)
@settings(max_examples=100)
@given(st.data())
def test_columns_hold_what_the_args_give(write: Writer, table: Given, data: st.DataObject) -> None:
    """Whatever the args of the other events of the lane are, and whichever are held together."""
    args = data.draw(given_args(table))
    lane = table.lane
    slices = [
        {**event, "args": own}
        for event, own in zip(run_on(lane.pid, lane.tid, ROWS), args, strict=True)
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
    """An amount that need not be whole, or what stands for none among rows."""
    return float(value) if isinstance(value, (int, float)) else "nan"


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
    """ColumnTable that no event of any piece gives stay constants."""
    lanes = [table.lane for table in GIVEN]
    found = [event for lane in lanes for event in lane.names()]
    found += [event for lane in lanes for event in run_on(lane.pid, lane.tid, 9)]
    with pieces(7):
        records = read(write(found))
    for table in GIVEN:
        rows: ColumnTable = getattr(records, table.table)
        assert len(rows) == 9
        for own, (_, absent) in table.ids.items():
            values: Int64 = getattr(rows, own)
            assert values.tolist() == [absent] * 9
            assert values.strides == (0,)


FIRST, LAST = run_on(1, 2, 2)


@pytest.mark.parametrize("block_bytes", [TINY_BLOCK, 1 << 19])
@pytest.mark.parametrize("wrong", [[1], {"a": 1}, True], ids=json.dumps)
@pytest.mark.parametrize(
    "arg", sorted(name for name in SPELLED if name not in ("FP Start", "BP End"))
)
def test_an_arg_of_another_shape_costs_the_args_and_says_where(
    write: Writer, arg: str, wrong: Any, block_bytes: int
) -> None:
    """Also where the events around it are fine, or of a phase that nobody knows."""
    broken = {**FIRST, "args": {arg: wrong}}
    path = write([*STREAM.names(), FIRST, {"ph": "i"}, broken, LAST])
    offset = path.read_bytes().index(json.dumps(broken).encode())
    with pieces(1, block_bytes):
        records = read(path)
    assert len(records.tasks) == 3
    (lost,) = (own for own in records.omissions if "args are of another shape" in own.reason)
    assert lost.reason.endswith(f"the first at byte {offset}")
    assert (lost.rows, lost.rank, lost.loss) == (1, RANK, True)


@pytest.mark.parametrize("held_events", HELD_COUNTS)
def test_events_of_unknown_phases_are_counted_as_lost(write: Writer, held_events: int) -> None:
    """Wherever they lie, also in a trace that is read a second time."""
    unknown: list[EventObject] = [{"ph": "i"}, {"ph": "B", "args": 7}, {"name": "no phase"}]
    renamed = LATE_NAMES["a stream gets another number"]
    with pieces(held_events):
        records = read(write([unknown[0], *renamed, *unknown]))
    assert [(found.rows, found.rank, found.loss) for found in records.omissions] == [
        (4, RANK, True)
    ]


@pytest.mark.parametrize("second", ["", "[", None], ids=["empty", "truncated", "missing"])
def test_a_slice_that_cannot_be_read_is_an_error_with_its_name(
    write: Writer, tmp_path: Path, second: str | None
) -> None:
    """Also where it is opened early, to look for names that the slice before does not have."""
    path = tmp_path / "slice_1.json"
    if second is not None:
        path.write_text(second, encoding="utf-8")
    first = write(run_on(1, 2, 20))
    with pieces(1), pytest.raises(SourceError) as caught:
        read(first, path)
    assert caught.value.path == path


class HeldEvents:
    """Counts how many of the events that were read somebody holds at once.

    Events cannot be referred to weakly, so they are kept here, and count as held while their
    reference count is higher than that of an object which is only kept in a list.
    """

    def __init__(self) -> None:
        self.most = 0
        self.blocks = 0
        self._seen: list[AscendEvent] = []
        self._kept_only = self._references([Other()])[0]

    def read(
        self, decoder: Any, path: Path, damage: LossLog, scan: None
    ) -> Iterator[list[AscendEvent]]:
        """Small blocks of events, counted before each next one."""
        assert scan is None
        for block in read_events(decoder, path, 4096, damage):
            self._seen += block
            yield block
            self.blocks += 1
            held = sum(found > self._kept_only for found in self._references(self._seen))
            self.most = max(self.most, held)

    @staticmethod
    def _references(events: Sequence[AscendEvent]) -> list[int]:
        return [sys.getrefcount(event) for event in events]


def busy_trace() -> tuple[list[EventObject], list[EventObject]]:
    """Some thousand events of all phases on several lanes; and the names of the lanes."""
    lanes = [*CALLS, *DEVICE_LANES]
    events: list[EventObject] = []
    for place in range(1000):
        lane = lanes[place % len(lanes)]
        at = {"pid": lane.pid, "tid": lane.tid, "ts": place}
        events += [
            {"ph": "X", **at, "name": f"op {place % 7}", "dur": 1, "args": {"Task Id": place}},
            {"ph": "C", **at, "name": "Read", "args": {"KB": place}},
            {"ph": "sf"[place % 2], **at, "cat": "fwdbwd", "id": place // 2},
        ]
    return events, [event for lane in lanes for event in lane.names()]


@pytest.mark.parametrize("names", ["first", "in between", "last", "missing"])
@pytest.mark.parametrize("only_slices", [False, True], ids=["all phases", "slices"])
def test_events_are_objects_only_for_a_while(write: Writer, names: str, only_slices: bool) -> None:
    """At most those that are held and one block, wherever the names lie, if anywhere."""
    found, metadata = busy_trace()
    events = [event for event in found if event["ph"] == "X"] if only_slices else found
    half = len(events) // 2
    orders = {
        "first": metadata + events,
        "in between": events[:half] + metadata + events[half:],
        "last": events + metadata,
        "missing": events,
    }
    held = HeldEvents()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanner, "Scanner", None)
        patch.setattr(reader, "HELD_EVENTS", 100)
        patch.setattr(reader, "read_events", held.read)
        read(write(orders[names]))
    assert held.blocks > 10
    assert 0 < held.most < 200


def test_a_lane_without_a_name_does_not_keep_the_whole_file(write: Writer) -> None:
    """Level 0 of torch_npu leaves CANN without a name.

    The times of an event are a view of its block, so a few events that wait for the name of their
    lane would keep the text of all blocks.
    """
    long = {"note": "x" * 600}
    events = [
        {**event, "pid": 1 if place % 100 else 99, "args": long}
        for place, event in enumerate(run_on(1, 2, 8000))
    ]
    path = write(STREAM.names() + events)
    with pieces(400, block_bytes=1 << 16):
        assert peak_bytes(path) < path.stat().st_size // 2


def peak_bytes(path: Path) -> int:
    """The most memory that reading a trace takes."""
    tracemalloc.start()
    try:
        read(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class Sheet(ColumnTable):
    """A table with a column that is always given, and some that have a default."""

    row: Int64 = column(np.int64)
    share: Float64 = column(np.float64, FLOAT_NOT_GIVEN)
    count: Int64 = column(np.int64, NO_TIME)
    code: Codes = column(np.int32, 0)


shares = st.sampled_from([FLOAT_NOT_GIVEN, 0.0, -0.0, 1.5])


@st.composite
def sheets(draw: st.DrawFn) -> tuple[Sheet, Sheet]:
    """A table whose columns are default, constant or plain, and one whose are all plain."""
    count = draw(st.integers(0, 4))
    own: dict[str, npt.NDArray[Any]] = {"row": np.arange(count)}
    if draw(st.booleans()):
        own["share"] = constant(draw(shares), count, np.float64)
    elif draw(st.booleans()):
        own["share"] = np.array(draw(st.lists(shares, min_size=count, max_size=count)), np.float64)
    if draw(st.booleans()):
        own["count"] = constant(draw(st.sampled_from([NO_TIME, 3])), count, np.int64)
    lean = Sheet.of(count, own)
    plain = {field.name: getattr(lean, field.name).copy() for field in dataclasses.fields(lean)}
    return lean, Sheet(**plain)


def same_bytes(one: Sheet, other: Sheet) -> bool:
    """Whether all values are the same, absent ones and the sign of zero included."""
    return all(
        getattr(one, field.name).tobytes() == getattr(other, field.name).tobytes()
        for field in dataclasses.fields(one)
    )


@given(st.lists(sheets(), max_size=4))
def test_tables_with_constants_join_like_plain_ones(parts: list[tuple[Sheet, Sheet]]) -> None:
    joined = Sheet.concat(lean for lean, _ in parts)
    assert same_bytes(joined, Sheet.concat(plain for _, plain in parts))
    if len(joined):
        assert joined.code.strides == (0,), "a default in all parts"


@given(sheets(), st.data())
def test_rows_of_tables_with_constants_are_those_of_plain_ones(
    tables: tuple[Sheet, Sheet], data: st.DataObject
) -> None:
    """By a mask and by positions, repeated ones among them."""
    lean, plain = tables
    places = st.lists(st.sampled_from(range(len(lean))), max_size=6) if len(lean) else st.just([])
    positions: Rows = np.array(data.draw(places), np.intp)
    mask = np.isin(np.arange(len(lean)), positions)
    for taken, wanted in (
        (lean.take(mask), plain.take(mask)),
        (lean.take(positions), plain.take(positions)),
    ):
        assert same_bytes(taken, wanted)
        assert not len(taken) or taken.code.strides == (0,)


@pytest.mark.parametrize("table", [Tasks, PlaneTasks, CommunicationOps, HostEvents, Steps])
def test_columns_that_a_source_does_not_give_take_no_memory(table: type[Spans]) -> None:
    """Their values are the declared ones, and nobody can write to one row and change all."""
    declared = {field.name: field.metadata for field in dataclasses.fields(table)}
    needed = {name: np.arange(3) for name, own in declared.items() if own["default"] is None}
    made = table.of(3, needed)
    for name in declared.keys() - needed.keys():
        values: npt.NDArray[Any] = getattr(made, name)
        wanted = np.full(3, declared[name]["default"], declared[name]["dtype"])
        assert values.dtype == wanted.dtype
        assert values.tobytes() == wanted.tobytes()
        assert values.strides == (0,)
        assert not values.flags.writeable


def test_a_constant_is_as_long_as_one_likes() -> None:
    """Also where no memory would hold its rows."""
    rows = 1 << 50
    values = constant(NO_GRAPH, rows, np.int64)
    assert len(values) == rows
    assert values[-1] == NO_GRAPH


def test_constants_of_different_values_join_to_a_plain_column() -> None:
    """Of which NaN is one value, whatever it compares to."""
    absent, present = (
        Sheet.of(2, {"row": [0, 1], "share": [value] * 2}) for value in (np.nan, 1.0)
    )
    same = Sheet.concat([Sheet.of(2, {"row": [0, 1]})] * 2)
    assert same.share.strides == (0,)
    assert np.isnan(same.share).tolist() == [True] * 4
    mixed = Sheet.concat([absent, present])
    np.testing.assert_array_equal(mixed.share, [np.nan, np.nan, 1.0, 1.0])
