"""Proves that repeated rows are found, and that nothing starts before what launched it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.made_launches import Arrow, Call, Op, Step, Task, made_records
from tests.support.made_tables import table_of
from tests.support.places import DATA, needs_captures
from tests.support.run_command import Command
from timeline.analysis import sound_records
from timeline.analysis.idle.launches import MOST_HOST_OFFSET_NS, device_items
from timeline.analysis.selected_rank import drawn_records
from timeline.analysis.sound_records import (
    BACKWARDS_REASON,
    EARLY_REASON,
    drop_backward_arrows,
    drop_early_arrows,
    fit_host_clock,
    repeated_rows,
)
from timeline.analysis.steps import assign_steps
from timeline.columns import chunks
from timeline.layers import Layer
from timeline.options import StepOperators
from timeline.profile import open_profile
from timeline.ranks.rank_work import read_rank
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import FlowEnd, OmissionCode, Records, Tasks
from timeline.selection import Align
from timeline.sources.source import ReadRequest

SPAN = st.tuples(st.integers(-5, 30), st.integers(0, 2), st.integers(0, 1))
"""A start, a length and a stream, of which many are equal."""


@given(
    st.lists(SPAN, max_size=60),
    st.booleans(),
    st.sampled_from([1, 4, 1 << 20]),
    st.sampled_from([1, 7, 1 << 16]),
)
def test_the_later_of_equal_rows_is_a_copy(
    spans: list[tuple[int, int, int]], in_order: bool, sorted_rows: int, part_rows: int
) -> None:
    """But for intervals without length, which may well be there twice."""
    spans = sorted(spans) if in_order else spans
    rows = [
        {"start_ns": start, "end_ns": start + length, "stream": stream}
        for start, length, stream in spans
    ]
    table = table_of(Tasks, rows, name=0, compute=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sound_records, "SORTED_ROWS", sorted_rows)
        patch.setattr(chunks, "CHUNK_ROWS", part_rows)
        found = repeated_rows(table)
    expected = [
        length > 0 and span in spans[:at] for at, span in enumerate(spans) for length in [span[1]]
    ]
    assert found.tolist() == expected


HOST, TASK, OP = FlowEnd.HOST, FlowEnd.TASK, FlowEnd.OP
FAR_NS = MOST_HOST_OFFSET_NS
REAL = ("torch-npu-text", "torch-npu-db", "trace-view-2024", "gpu-ranks")

early = st.integers(-3 * FAR_NS, 3 * FAR_NS)
"""How much earlier than its call a task starts."""


def _launched(early_ns: list[int], gap_ns: int = 10 * FAR_NS) -> Records:
    """A task for each call, which starts so much earlier than that."""
    calls = [Call(at * gap_ns, at * gap_ns + 5, connection=at) for at in range(len(early_ns))]
    tasks = [
        Task(call.start_ns - by_ns, call.start_ns - by_ns + 7, call.connection, call.start_ns)
        for call, by_ns in zip(calls, early_ns, strict=True)
    ]
    arrows = [Arrow("HostToDevice", (HOST, at), (TASK, at)) for at in range(len(early_ns))]
    return made_records(calls=calls, tasks=tasks, arrows=arrows)


@given(st.lists(early, min_size=1, max_size=8))
def test_the_clock_moves_by_what_starts_earliest_but_for_one(early_ns: list[int]) -> None:
    """All launches run forward then: the odd one is clipped, and no arrow runs backwards."""
    records = _launched(early_ns)
    fitted = fit_host_clock(drop_backward_arrows(records))
    wanted = max([0, *sorted(by_ns for by_ns in early_ns if by_ns <= FAR_NS)[:-1]])
    assert fitted.host_offset_ns == -wanted
    assert (records.host.start_ns - fitted.host.start_ns == wanted).all()
    assert fitted.tasks.start_ns.tolist() == records.tasks.start_ns.tolist()
    far = np.array(early_ns) > FAR_NS
    odd = ~far & (np.array(early_ns) > wanted)
    assert np.count_nonzero(odd) <= 1
    moved_ns = np.where(odd, fitted.tasks.start_ns, records.tasks.launch_ns - wanted)
    assert fitted.tasks.launch_ns.tolist() == moved_ns.tolist()
    lost = {one.reason: one.rows for one in fitted.omissions}
    counts = {BACKWARDS_REASON: int(far.sum()), EARLY_REASON: int(odd.sum())}
    assert lost == {reason: rows for reason, rows in counts.items() if rows}
    assert {one.code for one in fitted.omissions} <= {OmissionCode.ARROW_BACKWARDS}
    assert (_arrow_lengths_ns(drop_early_arrows(fitted)) >= 0).all()
    items = device_items(fitted)
    launched = items.launch != NO_ID
    assert np.count_nonzero(launched) == len(early_ns) - far.sum()
    assert (items.launch_start_ns <= items.start_ns)[launched].all()


@pytest.mark.parametrize(("count", "odd"), [(1, 1), (200, 1), (200, 2), (1000, 10), (40, 1)])
@pytest.mark.parametrize("by_ns", [15_000, 900_000])
def test_odd_records_move_no_clock(count: int, odd: int, by_ns: int) -> None:
    """One launch in a hundred, and always one, may be early: the other host times stay."""
    early_ns = np.full(count, -5_000)
    early_ns[:: max(count // odd, 1)][:odd] = by_ns
    fitted = fit_host_clock(_launched(early_ns.tolist()))
    assert fitted.host_offset_ns == 0
    latency_ns = fitted.tasks.start_ns - fitted.tasks.launch_ns
    assert sorted(latency_ns.tolist()) == [0] * odd + [5_000] * (count - odd)
    assert [(one.reason, one.rows) for one in fitted.omissions] == [(EARLY_REASON, odd)]


@pytest.mark.parametrize("early", [3, 40])
def test_more_than_a_few_early_launches_are_the_clock(early: int) -> None:
    """What more than one launch in a hundred shows is no odd record."""
    early_ns = [-5_000] * (200 - early) + [15_000] * early
    assert fit_host_clock(_launched(early_ns)).host_offset_ns == -15_000


def test_a_launch_time_alone_tells_it_too_and_absent_ones_stay_absent() -> None:
    """Where no call and no arrow was read, launch times tell how far the clocks are apart."""
    records = made_records(
        tasks=[Task(100, 110, launch_ns=130), Task(200, 210), Task(300, 310, launch_ns=330)],
        ops=[Op(300, 310, launch_ns=320)],
    )
    fitted = fit_host_clock(records)
    assert fitted.host_offset_ns == -30
    assert fitted.tasks.launch_ns.tolist() == [100, NO_TIME, 300]
    assert fitted.ops.launch_ns.tolist() == [290]


def test_windows_of_host_steps_move_with_launches() -> None:
    """A task stays in the step that launched it, and steps of the device stay where they are."""
    records = made_records(
        calls=[Call(100, 105, connection=1), Call(199, 205, connection=2)],
        tasks=[
            Task(60, 90, 1, launch_ns=100),
            Task(70, 95, 1, launch_ns=110),
            Task(400, 420, 2, launch_ns=199),
        ],
        steps=[Step(100, 199, 1, host=True), Step(199, 300, 2, host=True), Step(0, 500, 7)],
    )
    fitted = fit_host_clock(records)
    assert fitted.steps.start_ns.tolist() == [60, 159, 0]
    assert fitted.steps.end_ns.tolist() == [159, 260, 500]
    assert fitted.steps.fp_start_ns.tolist() == [NO_TIME] * 3
    before, after = assign_steps(records), assign_steps(fitted)
    assert before.tasks.tolist() == after.tasks.tolist()


@needs_captures
@pytest.mark.parametrize("name", REAL)
def test_arrows_of_real_captures_run_forward(name: str) -> None:
    """Some run backwards on the clocks as recorded, none does when they are fitted."""
    wanted = ReadRequest(frozenset(Layer))
    backwards = 0
    with open_profile(DATA / name) as profile:
        for source in profile.sources:
            recorded = read_rank(source, wanted, StepOperators(), Align.RECORDED)
            assert recorded.host_offset_ns == 0
            backwards += int(np.count_nonzero(_arrow_lengths_ns(recorded) < 0))
            fitted = read_rank(source, wanted, StepOperators())
            drawn = drawn_records(fitted, frozenset(Layer))
            assert (_arrow_lengths_ns(drawn) >= 0).all()
            assert len(fitted.flows) - len(drawn.flows) <= len(fitted.flows) // 100
            assert fitted.tasks.start_ns.tolist() == recorded.tasks.start_ns.tolist()
    assert backwards


def _arrow_lengths_ns(records: Records) -> np.ndarray:
    """From the start of a call to that of what it leads to on the device."""
    flows, found = records.flows, [np.empty(0, np.int64)]
    for kind, table in ((TASK, records.tasks), (OP, records.ops), (FlowEnd.PLANE, records.planes)):
        rows = np.flatnonzero((flows.source_kind == HOST) & (flows.target_kind == kind))
        begins_ns = records.host.start_ns[flows.source_row[rows]]
        found.append(table.start_ns[flows.target_row[rows]] - begins_ns)
    return np.concatenate(found)


@needs_captures
def test_reports_tell_what_host_times_were_moved_by(command: Command) -> None:
    """`--json` tells the correction of each rank; there is none where clocks stay as recorded."""
    profile = DATA / "torch-npu-text"

    def offsets_ns(*options: str) -> list[int]:
        ranks = command.report(profile, *options)["ranks"]
        return [rank["host_offset_ns"] for rank in ranks]

    fitted_ns = offsets_ns()
    assert all(by_ns < 0 for by_ns in fitted_ns)
    assert offsets_ns("--kind", "detail", "--no-causes") == fitted_ns
    for kept in (("--no-causes",), ("--align", "recorded"), ("--align", "none")):
        assert offsets_ns(*kept) == [0, 0]
