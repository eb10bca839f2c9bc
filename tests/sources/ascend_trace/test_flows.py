"""Proves that arrows and launch times are those that a plain search over all events finds."""

from __future__ import annotations

import itertools
from collections import Counter as Multiset
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_intervals import EPOCH_NS, SPAN_NS, Interval, intervals, laminar_intervals
from tests.support.trace_json_reading import (
    ALL_LAYERS,
    CALLS,
    CATEGORIES,
    DEVICE_LANES,
    GROUP,
    HELD_COUNTS,
    LAUNCHING,
    STREAM,
    EventObject,
    Lane,
    Row,
    Writer,
    arrows_of,
    content,
    names_of,
    pieces,
    read,
    run_on,
)
from timeline.columns.strings import StringPool
from timeline.layers import Layer
from timeline.records.not_given import NO_TIME
from timeline.records.tables import CommunicationOps, Tasks

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
        on_lane = [call for call in self.calls if call.lane == end.lane]
        starting = [call for call in on_lane if call.span[0] == end.time_ns]
        if starting and (end.phase != "s" or end.lane not in CALLS):
            return starting[0]
        return innermost_call(on_lane, end.time_ns) if end.lane in CALLS else None

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
        for lane, on_lane in spans
        for span in on_lane
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
