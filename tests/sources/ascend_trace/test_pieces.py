"""Proves that a trace makes the same records however it is cut into pieces while it is read."""

from __future__ import annotations

from collections import Counter as Multiset
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.trace_json_reading import (
    BIG_IDS,
    CATEGORIES,
    HELD_COUNTS,
    LATE_NAMES,
    RANK,
    SPELLED,
    STREAM,
    TABLES,
    TINY_BLOCK,
    EventObject,
    Lane,
    Writer,
    arrows_of,
    columns_of,
    content,
    is_metadata,
    names_of,
    pieces,
    process,
    read,
    run_on,
    samples_of,
    thread,
)
from timeline.errors import SourceError
from timeline.records.not_given import NO_CONTEXT, NO_ID
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders import json_events
from timeline.sources.decoders.json_events import read_events

pytestmark = pytest.mark.sweep

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


@settings(max_examples=at_most(60))
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


@settings(max_examples=at_most(50))
@given(traces())
def test_records_do_not_depend_on_how_an_export_is_sliced(write: Writer, trace: Trace) -> None:
    """Files of one export share their names, wherever these lie."""
    plain = content(read(write(trace.mixed)))
    first = write(trace.mixed[: trace.cut], "slice_0.json")
    second = write(trace.mixed[trace.cut :], "slice_1.json")
    for held_events in HELD_COUNTS:
        with pieces(held_events):
            assert content(read(first, second)) == plain


@settings(max_examples=at_most(40))
@given(traces())
def test_args_that_are_not_wanted_are_the_only_ones_absent(write: Writer, trace: Trace) -> None:
    """A column is as it would be otherwise, or it holds nothing."""
    path = write(trace.mixed)
    records, lean = read(path), read(path, every_arg=False)
    for name in TABLES:
        found = columns_of(getattr(records, name), records.strings)
        for column, values in columns_of(getattr(lean, name), lean.strings).items():
            assert values == found[column] or set(values) <= {NO_ID, NO_CONTEXT, ""}, column
    assert Multiset(arrows_of(lean, names_of)) == Multiset(arrows_of(records, names_of))
    assert samples_of(lean) == samples_of(records)
    assert lean.omissions == records.omissions


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

    def counted(decoder: Any, path: Path, _: int, damage: LossLog, scan: Any) -> Iterator[Any]:
        opened.append(path)
        return read_events(decoder, path, TINY_BLOCK, damage, scan=scan)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_events, "HELD_EVENTS", 1)
        patch.setattr(json_events, "read_events", counted)
        read(path)
    assert opened == [path] * passes


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
