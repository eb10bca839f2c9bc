"""Proves that what --sql asks is answered with the numbers of the simulated run, in any layout."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest

from simulator.model import RankRun, Run, Task
from simulator.overlap import IDLE, expected_overlap, free_segments
from simulator.writers.kineto import launching_operators
from tests.support.expected_picture import GRAPH_LAYOUTS, period_of
from tests.support.loaded_picture import LoadedPicture
from tests.support.perfetto_sql import Row, TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline import open_profile, read_verdict
from timeline.analysis.work.operator_names import kernel_type, launched_type
from timeline.cli.main import main
from timeline.viewer.queries import queries_text

VIEW = re.compile(r"PERFETTO (?:VIEW|TABLE) (\w+)")
RUN = {"ops_per_step": 24, "planes": 4}
CASES = {
    "torch-db": (),
    "torch-text": ("-o", "timeline.json"),
    "mindspore-2.1": ("--group-by", "layer"),
    "mindstudio": ("--args", "all"),
    "kineto": ("--scopes",),
}
"""Layouts, each drawn in another way."""


@dataclass(frozen=True)
class Asked:
    """A timeline in which the questions can be asked, and the run that it shows."""

    run: Run
    processor: TraceProcessor
    layout: str
    profile: Path
    path: Path

    @property
    def is_json(self) -> bool:
        return self.path.suffix == ".json"

    def rows(self, sql: str) -> list[Row]:
        return self.processor.rows(sql)

    @cached_property
    def picture(self) -> LoadedPicture:
        """The slices by other means than the queries."""
        return LoadedPicture(self.processor, self.is_json)


def asked(shelf: ProfileShelf, folder: Path, layout: str, *arguments: str) -> Asked:
    """Draw the run from a layout and prepare all questions."""
    profile = shelf.get(layout, **RUN)
    words = ["--kind", "detail", "-o", "timeline.pftrace", *arguments]
    at = len(words) - words[::-1].index("-o")
    target = folder / words[at]
    words[at] = str(target)
    assert main([str(profile.path), "-q", *words]) == 0
    processor = TraceProcessor.load(target.read_bytes())
    processor.rows(queries_text())
    return Asked(profile.run, processor, layout, profile.path, target)


@pytest.fixture(scope="module", params=CASES)
def case(
    request: pytest.FixtureRequest, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> Asked:
    """A detail of each layout."""
    return asked(shelf, tmp_path_factory.mktemp("queries"), request.param, *CASES[request.param])


def steps_of(case: Asked) -> dict[tuple[int, int], dict[str, int]]:
    """How each rank spent each step, by rank and step."""
    found = {}
    for rank in case.run.ranks:
        for at, step in enumerate(rank.steps):
            parts = expected_overlap(case.run, rank.rank, step.id)
            begin_ns, end_ns = period_of(rank, at, of_graphs=case.layout in GRAPH_LAYOUTS)
            free = free_segments(case.run, rank.rank, step.id)
            idle_ns = sum(one.duration_ns for one in free if one.category == IDLE)
            found[rank.rank, step.id] = {
                **parts,
                "period_ns": end_ns - begin_ns,
                "idle_ns": idle_ns,
            }
    return found


def test_slowest_steps(case: Asked) -> None:
    """Each step once, of the rank that took longest; the slowest first."""
    wanted = []
    for step in {step for _, step in steps_of(case)}:
        by_rank = {rank: parts for (rank, one), parts in steps_of(case).items() if one == step}
        slowest = max(by_rank, key=lambda rank: by_rank[rank]["period_ns"])
        spans = [parts["period_ns"] for parts in by_rank.values()]
        parts = by_rank[slowest]
        numbers = (
            parts[f"{name}_ns"] for name in ("period", "computing", "not_overlapped", "idle")
        )
        wanted.append((step, slowest, *numbers, max(spans) - min(spans)))
    wanted.sort(key=lambda row: -row[2])
    columns = "step, slowest_rank, period_ns, computing_ns, not_overlapped_ns, idle_ns, spread_ns"
    assert case.rows(f"SELECT {columns} FROM slowest_steps") == wanted


def test_rank_times(case: Asked) -> None:
    """Means over the steps of each rank; the one that computes longest comes first."""
    wanted = []
    for rank in (rank.rank for rank in case.run.ranks):
        of_rank = [parts for (one, _), parts in steps_of(case).items() if one == rank]
        names = ("period_ns", "computing_ns", "communication_ns", "not_overlapped_ns", "idle_ns")
        means = [sum(parts[name] for parts in of_rank) // len(of_rank) for name in names]
        wanted.append((rank, len(of_rank), *means))
    wanted.sort(key=lambda row: -row[3])
    assert case.rows("SELECT * FROM rank_times") == wanted


def exposed_ns(rank: RankRun, start_ns: int, end_ns: int) -> int:
    """How much of a stretch the rank computes nothing in."""
    at_ns, found = start_ns, 0
    kernels = [task for one in rank.iterations for task, _ in one.kernels]
    for task in sorted(kernels, key=lambda task: task.start_ns):
        found += max(0, min(task.start_ns, end_ns) - at_ns)
        at_ns = max(at_ns, min(task.end_ns, end_ns))
    return found + end_ns - at_ns


def test_exposed_communication(case: Asked) -> None:
    """Of each op what computing does not hide; sums where ops of several steps share a name."""
    wanted: dict[tuple[int, int], list[int]] = {}
    for rank in case.run.ranks:
        ops = [collective for one in rank.iterations for collective in one.collectives]
        for number, op in enumerate(ops):
            alone = exposed_ns(rank, op.start_ns, op.end_ns)
            shared = {"mindspore-2.1": number % 2, "kineto": 0}.get(case.layout, number)
            sums = wanted.setdefault((rank.rank, shared), [0, 0, 0])
            for at, value in enumerate((1, op.duration_ns, alone)):
                sums[at] += value
    found = case.rows("SELECT rank, ops, total_ns, exposed_ns FROM exposed_communication")
    assert sorted(found) == sorted((rank, *sums) for (rank, _), sums in wanted.items())
    assert case.rows(
        "SELECT count(*) FROM exposed_communication WHERE exposed_ns + hidden_ns <> total_ns"
    ) == [(0,)]
    assert [row[3] for row in found] == sorted((row[3] for row in found), reverse=True)


def test_late_arrivals(case: Asked) -> None:
    """Who begins last at each collective, and what the other waits for it."""
    calls = [
        [collective.start_ns for one in rank.iterations for collective in one.collectives]
        for rank in case.run.ranks
    ]
    wanted = []
    for starts in zip(*calls, strict=True):
        late = max(starts) - min(starts)
        wanted.append((len(starts), starts.index(max(starts)), late, late))
    found = case.rows("SELECT ranks, last_rank, late_ns, lost_ns FROM late_arrivals")
    assert sorted(found) == sorted(wanted)
    times = Counter(last for _, last, _, _ in wanted)
    lost = {rank: sum(row[3] for row in wanted if row[1] == rank) for rank in times}
    worst = {rank: max(row[2] for row in wanted if row[1] == rank) for rank in times}
    by_rank = [(rank, times[rank], lost[rank], worst[rank]) for rank in times]
    assert case.rows("SELECT * FROM late_ranks") == sorted(by_rank, key=lambda row: -row[2])


def expected_gaps(case: Asked) -> dict[tuple[int, str], list[tuple[int, int]]]:
    """The gaps of each stream of each rank: start and end."""
    tasks = defaultdict(list)
    for shown in case.picture.by_id.values():
        if shown.row.startswith("Stream") and shown.layer != "Scope Layer":
            tasks[shown.rank, shown.row].append((shown.start_ns, shown.start_ns + shown.length_ns))
    found: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for row, spans in tasks.items():
        at_ns = min(spans)[0]
        for start_ns, end_ns in sorted(spans):
            if start_ns > at_ns:
                found.setdefault(row, []).append((at_ns, start_ns))
            at_ns = max(at_ns, end_ns)
    return found


def test_stream_gaps(case: Asked) -> None:
    wanted = [(*row, *gap) for row, gaps in expected_gaps(case).items() for gap in gaps]
    found = case.rows("SELECT rank, stream, ts, ts + dur, dur FROM stream_gaps")
    assert sorted(row[:4] for row in found) == sorted(wanted)
    assert len(found) > 50
    assert [row[4] for row in found] == sorted((row[4] for row in found), reverse=True)


def test_step_gaps(case: Asked) -> None:
    """Only what lies within the step counts, of gaps that go beyond it too."""
    steps = case.rows("SELECT rank, step, ts, ts + dur FROM device_steps")
    assert len(steps) == 6
    wanted = []
    for (rank, stream), gaps in expected_gaps(case).items():
        for one, step, first, last in steps:
            inside = [min(end, last) - max(start, first) for start, end in gaps if one == rank]
            lengths = [length for length in inside if length > 0]
            if lengths:
                wanted.append((rank, step, stream, len(lengths), sum(lengths), max(lengths)))
    found = case.rows("SELECT rank, step, stream, gaps, total_ns, longest_ns FROM step_gaps")
    assert sorted(found) == sorted(wanted)


def test_operator_times(case: Asked) -> None:
    """Count and time of each type of operator, and its share of all."""
    kernels = []
    for rank in case.run.ranks:
        launched = dict(launching_operators(rank)) if case.layout == "kineto" else {}
        for one in rank.iterations:
            for task, kernel in one.kernels:
                _, by = launched.get(task.connection_id, (0, kernel.op_type))
                is_call = case.layout == "kineto" and not launched_type(by)
                kernels.append((kernel_type(kernel.name) if is_call else by, task))
    all_ns = sum(task.duration_ns for _, task in kernels)
    wanted = []
    for operator in {name for name, _ in kernels}:
        lengths_ns = [task.duration_ns for name, task in kernels if name == operator]
        wanted.append((operator, len(lengths_ns), sum(lengths_ns), max(lengths_ns)))
    found = case.rows(
        "SELECT operator, sum(tasks), sum(total_ns), max(longest_ns), sum(percent)"
        " FROM operator_times GROUP BY operator"
    )
    assert sorted(row[:4] for row in found) == sorted(wanted)
    for _, _, total_ns, _, percent in found:
        assert percent == pytest.approx(100 * total_ns / all_ns, abs=0.1)


def test_launch_delays(case: Asked) -> None:
    """From each call to each task that an arrow leads to."""
    wanted = defaultdict(list)
    for call, task in case.picture.arrows():
        if call.row.startswith("Thread") and task.row.startswith("Stream"):
            wanted[task.rank, task.row, call.layer].append(task.start_ns - call.start_ns)
    found = case.rows("SELECT * FROM launch_delays")
    assert found == [
        (*row, len(one), min(one), sum(one) // len(one), max(one))
        for row, one in sorted(wanted.items())
    ]
    assert bool(found) == (case.layout != "mindspore-2.1"), "which has no arrows"


def test_plane_times(case: Asked) -> None:
    """Time, waits and bytes of each plane of each rank."""
    wanted = {}
    for rank in case.run.ranks:
        tasks = [
            task
            for one in rank.iterations
            for collective in one.collectives
            for task in collective.tasks
        ]
        for plane in range(RUN["planes"]):
            on_plane = [task for task in tasks if task.transfer and task.transfer.plane == plane]
            wanted[rank.rank, plane] = plane_sums(on_plane)
    found = case.rows(
        "SELECT rank, CAST(substr(plane, -1) AS INT), sum(tasks), sum(total_ns), sum(waiting_ns),"
        " sum(moved_bytes) FROM plane_times GROUP BY 1, 2"
    )
    if case.layout == "kineto":  # knows no planes
        assert found == []
        return
    assert {(rank, plane): tuple(sums) for rank, plane, *sums in found} == wanted
    speeds = case.rows("SELECT gb_per_s FROM plane_times WHERE link_type = 'HCCS'")
    assert speeds
    assert all(1 < speed < 100 for (speed,) in speeds)


def plane_sums(tasks: Iterable[Task]) -> tuple[int, int, int, int]:
    held = [(task, task.transfer) for task in tasks if task.transfer is not None]
    return (
        len(held),
        sum(task.duration_ns for task, _ in held),
        sum(task.duration_ns for task, one in held if one.kind == "Notify_Wait"),
        sum(one.size_bytes for _, one in held),
    )


def test_verdict(case: Asked) -> None:
    """The sentences that lie in the file, in their order."""
    said = [text for (text,) in case.rows("SELECT sentence FROM verdict")]
    filed = read_verdict(case.path)
    assert len(said) > 2
    assert said == list(filed.sentences)


def test_waited_for(case: Asked) -> None:
    """Whom each of the two ranks waited for, as the report sums it up."""
    found = case.rows("SELECT rank, waited_for_rank, profiled, waited_ns FROM waited_for")
    with open_profile(case.profile) as profile:
        wanted = profile.waiting()
    columns = ("rank", "waited_for_rank", "profiled", "waited_ns")
    assert sorted(found) == sorted(zip(*(wanted[name].tolist() for name in columns), strict=True))


def test_idle_causes(case: Asked) -> None:
    """Causes make up the idle time of each rank, and calls no more than their causes."""
    found = case.rows("SELECT rank, sum(total_ns) FROM idle_causes GROUP BY rank ORDER BY rank")
    with open_profile(case.profile) as profile:
        wanted = profile.idle()
    of_all = wanted.take(np.ma.getmaskarray(wanted["step"]))
    sums = Counter[int]()
    for rank, total_ns in zip(of_all["rank"].tolist(), of_all["total_ns"].tolist(), strict=True):
        sums[rank] += total_ns
    assert found == sorted(sums.items())
    assert case.rows(
        "SELECT count(*) FROM idle_calls JOIN idle_causes USING (rank, cause)"
        " WHERE idle_calls.total_ns > idle_causes.total_ns"
    ) == [(0,)]


def test_critical_path(case: Asked) -> None:
    """By step, rank and kind what the segments of the library add up to."""
    found = case.rows("SELECT step, rank, kind, total_ns FROM critical_path")
    with open_profile(case.profile) as profile:
        wanted = profile.critical_path()
    sums = Counter[tuple[int, int, str]]()
    for row in wanted.to_dicts():
        sums[row["step"], row["rank"], row["kind"]] += row["duration_ns"]
    assert {tuple(row[:3]): row[3] for row in found} == sums


SHORT = {
    "who_holds_others_up": "name GLOB 'Waiting for *'",
    "which_steps_are_slow": "arg_number(args, 'step', 'span_ns') IS NOT NULL",
    "why_devices_idle": "label = 'Idle'",
}
"""What --open shows, and where the slices are that it leads to."""


def test_what_is_shown_first_adds_up(case: Asked) -> None:
    """The short answers are sums of the long ones, in milliseconds too."""
    waits, steps, idle = (case.rows(f"SELECT * FROM {view}") for view in SHORT)
    assert [(row[0], row[6], row[2]) for row in waits] == case.rows(
        "SELECT waited_for_rank, profiled, round(sum(waited_ns) / 1e6, 3) FROM waited_for"
        " GROUP BY waited_for_rank ORDER BY sum(waited_ns) DESC"
    )
    assert [(row[0], row[1], row[2]) for row in steps] == case.rows(
        "SELECT step, slowest_rank, round(period_ns / 1e6, 3) FROM slowest_steps"
    )
    assert [(row[0], row[4], row[1]) for row in idle] == case.rows(
        "SELECT cause, sum(slices), round(sum(total_ns) / 1e6, 3) FROM idle_causes"
        " GROUP BY cause ORDER BY sum(total_ns) DESC, cause"
    )
    for rows, at in ((waits, 3), (idle, 2)):
        assert sum(row[at] for row in rows) == pytest.approx(100, abs=0.3)
    parts = [sum(row[3:7]) for row in steps]
    assert all(part <= row[2] + 0.01 for part, row in zip(parts, steps, strict=True))


@pytest.mark.parametrize("view", SHORT)
def test_what_is_shown_first_leads_to_slices(case: Asked, view: str) -> None:
    """To one of the kind that each row counts; the UI needs these five columns to link it."""
    assert case.rows(f"SELECT count(*) > 0 FROM {view}") == [(1,)]
    assert case.rows(
        f"SELECT count(*) FROM {view} AS shown WHERE NOT EXISTS (SELECT 1 FROM drawn WHERE"
        " drawn.id = shown.slice_id AND shown.id = shown.slice_id AND drawn.ts = shown.ts"
        f" AND drawn.dur = shown.dur AND drawn.track_id = shown.track_id AND {SHORT[view]})"
    ) == [(0,)]


def test_a_summary_answers_what_is_in_it(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Steps and ranks as in a detail; questions about single tasks and ops have no answer."""
    summary = asked(shelf, tmp_path, "torch-db", "--kind", "summary")
    test_slowest_steps(summary)
    test_rank_times(summary)
    for view in ("exposed_communication", "late_ranks", "stream_gaps", "operator_times"):
        assert summary.rows(f"SELECT * FROM {view}") == []


def test_one_rank_alone_has_no_other_to_wait_for(shelf: ProfileShelf, tmp_path: Path) -> None:
    alone = asked(shelf, tmp_path, "torch-db", "--ranks", "1")
    assert alone.rows("SELECT DISTINCT rank FROM device_tasks") == [(1,)]
    assert alone.rows("SELECT rank, steps FROM rank_times") == [(1, 3)]
    assert alone.rows("SELECT count(*) FROM late_arrivals") == [(0,)]


def test_merged_slices_count_for_no_task(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Under a limit the questions speak of the tasks that are still there one by one."""
    coarse = asked(shelf, tmp_path, "torch-db", "--limit", "16KB")
    ((merged,),) = coarse.rows(
        "SELECT count(*) FROM slice WHERE extract_arg(arg_set_id, 'merged.busy_ns') IS NOT NULL"
    )
    assert merged > 0
    assert coarse.rows("SELECT count(*) FROM device_tasks WHERE name GLOB '* tasks: *'") == [(0,)]
    test_slowest_steps(coarse)


def test_the_file_may_be_run_again(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Whoever pastes it twice sees the same, from views that all have names of their own."""
    text = queries_text()
    assert '"' not in text, "the Query page warns of it"
    names = VIEW.findall(text)
    assert len(set(names)) == len(names)
    case = asked(shelf, tmp_path, "torch-db")
    before = {name: case.rows(f"SELECT * FROM {name}") for name in names}
    case.rows(text)
    assert {name: case.rows(f"SELECT * FROM {name}") for name in names} == before
    empty = [name for name, rows in before.items() if not rows]
    assert empty == ["which_steps_changed"], "which is of comparisons"
