"""Proves that steps, layers, args and groups are found, drawn and counted as the options say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from simulator.model import Iteration, RankRun
from simulator.overlap import expected_overlap, sweep, totals
from tests.support.drawn_slices import drawn_rows, drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Profile, ProfileShelf, change_events, without_markers
from tests.support.run_command import (
    OVERLAP_FIELDS,
    Command,
    hardware_tasks,
    overlap_of,
    whole_overlap,
)

# -- selections ------------------------------------------------------------------------------------


def measure_overlap(iterations: Iterable[Iteration]) -> dict[str, int]:
    """The overlap of the records of some iterations taken together."""
    return dict(zip(OVERLAP_FIELDS, totals(sweep(iterations)).values(), strict=True))


def device_tasks(rank: RankRun) -> list[tuple[int, int]]:
    """Start and end of every device task, in order."""
    tasks = [*rank.switches, *(task for one in rank.iterations for task in one.tasks)]
    return sorted((task.start_ns, task.end_ns) for task in tasks)


def drawn_spans(picture: TraceProcessor, *within: str) -> list[tuple[int, int]]:
    return sorted((one.start_ns, one.end_ns) for one in drawn_slices(picture, *within))


def test_window_is_half_open(command: Command, profile: Profile) -> None:
    """START is in and END is not; records that reach into the window are kept whole."""
    tasks = device_tasks(profile.run.rank(0))
    zero = tasks[0][0]
    start, end = tasks[40][1], tasks[120][0]
    ends_at_start = [task for task in tasks if task[1] == start > task[0]]
    starts_at_end = [task for task in tasks if task[0] == end]
    assert ends_at_start
    assert starts_at_end
    window = f"{start - zero}:{end - zero}"
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--window", window)
    drawn = drawn_spans(command.picture(*arguments), "Ascend Hardware")
    assert drawn == [
        task for task in tasks if task[0] < end and (task[1] > start or task[0] >= start)
    ]
    assert not set(ends_at_start) & set(drawn)
    assert not set(starts_at_end) & set(drawn)
    wider = f"{start - zero - 1}:{end - zero + 1}"
    drawn = drawn_spans(command.picture(*arguments[:-1], wider), "Ascend Hardware")
    assert set(ends_at_start) | set(starts_at_end) <= set(drawn)


def test_window_units(command: Command, profile: Profile) -> None:
    """A window is the same in ns, us, ms and s, and an empty edge is the end of the trace."""
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--window")
    spelled = (
        "6200000:9300000",
        "6200us:9300us",
        "6.2ms:9.3 ms",
        "0.0062s:0.0093s",
        "6.2ms:9300us",
    )
    drawn = [drawn_spans(command.picture(*arguments, window)) for window in spelled]
    assert drawn[0]
    assert all(other == drawn[0] for other in drawn)
    whole = drawn_spans(command.picture(*arguments[:-1]), "Ascend Hardware")
    for window in (":", "0:", ":100%", "0%:100%"):
        assert drawn_spans(command.picture(*arguments, window), "Ascend Hardware") == whole


def test_window_in_percent(command: Command, profile: Profile) -> None:
    """A percentage is a share of the time between the first and the last device record."""
    tasks = device_tasks(profile.run.rank(0))
    first, last = tasks[0][0], max(end for _, end in tasks)
    start, end = first + (last - first) * 40 // 100, first + (last - first) * 60 // 100
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--window", "40%:60%")
    drawn = drawn_spans(command.picture(*arguments), "Ascend Hardware")
    assert drawn == [
        task for task in tasks if task[0] < end and (task[1] > start or task[0] >= start)
    ]
    assert 0 < len(drawn) < len(tasks)


def test_window_of_a_step(command: Command, profile: Profile) -> None:
    """A window counts from the first record of the selection, not of the profile."""
    step = [one for one in profile.run.rank(0).iterations if one.number == 2]
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--steps", "2", "--window")
    drawn = drawn_spans(command.picture(*arguments, "0:1"), "Ascend Hardware")
    first = min(one.start_ns for one in step)
    assert drawn == [
        span for span in device_tasks(profile.run.rank(0)) if first <= span[0] < first + 1
    ]
    outcome = command(*arguments, "5s:6s")
    assert outcome.code == 3
    assert "outside of what there is" in outcome.err


@pytest.mark.parametrize(
    ("options", "graphs", "steps"),
    [
        (("--steps", "2"), (1, 3), (2,)),
        (("--steps", "2-3"), (1, 3), (2, 3)),
        (("--graphs", "3"), (3,), (1, 2, 3)),
        (("--graphs", "1", "--steps", "1,2"), (1,), (1, 2)),
        (("--graphs", "1,3", "--steps", "1-3"), (1, 3), (1, 2, 3)),
    ],
    ids=["a step", "a range of steps", "a graph", "steps of a graph", "all by name"],
)
def test_selection_is_exact(
    command: Command,
    profile: Profile,
    options: Sequence[str],
    graphs: Sequence[int],
    steps: Sequence[int],
) -> None:
    """Graphs and steps keep exactly their own records, all names, and their own overlap."""
    report = command.report(profile.path, "--kind", "detail", *options, "-o", "out.pftrace")
    picture = command.loaded("out.pftrace")
    for rank in profile.run.ranks:
        chosen = [one for one in rank.iterations if one.graph in graphs and one.number in steps]
        if "--steps" in options and len(graphs) == 1:
            # A step of another graph lies between each two.
            apart = [measure_overlap([one]) for one in chosen]
            wanted = {field: sum(one[field] for one in apart) for field in OVERLAP_FIELDS}
        else:
            wanted = measure_overlap(chosen)
        assert whole_overlap(report, rank.rank) == wanted
        per_step = {
            (row["graph"], row["step"]): overlap_of(row)
            for row in report["overlap"]
            if row["rank"] == rank.rank and row["step"] is not None
        }
        assert per_step == {
            (one.graph, one.number): expected_overlap(profile.run, rank.rank, one.number, one.graph)
            for one in chosen
        }
        of_rank = drawn_slices(picture, f"Rank {rank.rank}")
        hardware = [one for one in of_rank if "Ascend Hardware" in one.row]
        tasks = [task for one in chosen for task in one.tasks]
        switches = rank.switches if "--steps" not in options and len(graphs) == 2 else ()
        assert sorted((one.start_ns, one.end_ns) for one in hardware) == sorted(
            (task.start_ns, task.end_ns) for task in (*tasks, *switches)
        )
        rows = {one.row[-1] for one in of_rank}
        streams = {f"Stream {task.stream}" for task in tasks}
        planes = {"Plane 0", "Plane 1", "Group 0 Communication"}
        assert streams | planes | {"Computing", "Free", "Iterations", "Reduce"} <= rows
        reduces = [one for one in of_rank if one.row[-1] == "Reduce"]
        assert sorted((one.start_ns, one.end_ns) for one in reduces) == sorted(
            (reduce.start_ns, reduce.end_ns) for one in chosen for reduce in one.collectives
        )


def test_time_between_chosen_steps_counts_for_none(command: Command, profile: Profile) -> None:
    """Steps apart from each other are taken together without the time between them."""
    report = command.report(profile.path, "--steps", "1,3", "-o", "out.pftrace")
    for rank in profile.run.ranks:
        parts = [
            measure_overlap(one for one in rank.iterations if one.number == step) for step in (1, 3)
        ]
        expected = {field: sum(part[field] for part in parts) for field in OVERLAP_FIELDS}
        assert whole_overlap(report, rank.rank) == expected


def test_steps_of_host_windows(command: Command, shelf: ProfileShelf) -> None:
    """A step of torch_npu is what it launched, however late that ran on the device."""
    for layout in ("torch-text", "torch-db"):
        found = shelf.get(layout)
        report = command.report(found.path, "--kind", "detail", "--steps", "2", "-o", "out.pftrace")
        picture = command.loaded("out.pftrace")
        for rank in found.run.ranks:
            assert whole_overlap(report, rank.rank) == expected_overlap(found.run, rank.rank, 2)
            (step,) = [step for step in rank.steps if step.id == 2]
            tasks = [task for one in step.iterations for task in one.tasks]
            drawn = drawn_spans(picture, f"Rank {rank.rank}", "Ascend Hardware")
            assert drawn == sorted((task.start_ns, task.end_ns) for task in tasks)


def test_selected_rank_of_many(command: Command, shelf: ProfileShelf) -> None:
    """Ranges of ranks include both ends, and rows stay in the order of numbers."""
    many = shelf.get("torch-db", ranks=12, steps=1)
    report = command.report(many.path, "--ranks", "0,9-11", "-o", "out.pftrace")
    assert [row["rank"] for row in report["ranks"]] == [0, 9, 10, 11]
    found = command.loaded("out.pftrace").rows(
        "SELECT name FROM track WHERE name GLOB '*Rank *' AND parent_id IS NULL ORDER BY name"
    )
    ranks = [name.partition(":")[0] for (name,) in found if not name.startswith(" ")]
    assert ranks == ["Rank 00", "Rank 09", "Rank 10", "Rank 11"]
    listed = command(many.path, "--list").out.splitlines()[1:13]
    assert [line.split()[0] for line in listed] == [str(rank) for rank in range(12)]


# -- layers, args and groups -----------------------------------------------------------------------


LAYER_ROWS = {
    "steps": "Step Trace",
    "overlap": "Overlap Analysis",
    "hardware": "Ascend Hardware",
    "communication": "Communication",
    "cann": "CANN",
    "framework": "python3",
    "scopes": "Scope Layer",
    "counters": "Counters",
}


def layer_rows(picture: TraceProcessor) -> set[str]:
    """The names of the layers of a picture grouped by rank."""
    return {
        row[row.index("Rank 0") + 1]
        for row in drawn_rows(picture).values()
        if "Rank 0" in row and len(row) > row.index("Rank 0") + 1
    }


@pytest.mark.parametrize("layer", LAYER_ROWS)
def test_layers(command: Command, profile: Profile, layer: str) -> None:
    """--layers draws the layers it names and no other."""
    arguments = (profile.path, "--group-by", "rank", "--layers", layer)
    for kind in ("summary", "detail"):
        picture = command.picture(*arguments, "--kind", kind)
        assert layer_rows(picture) == {LAYER_ROWS[layer]}


ARROWS_OF_LAYERS = """
    SELECT count(*) FROM flow JOIN slice ON slice.id = flow.slice_out
    JOIN track ON track.id = slice.track_id LEFT JOIN track AS above ON above.id = track.parent_id
    WHERE trim(coalesce(above.name, '')) != 'Critical path'
      AND NOT EXISTS (
        SELECT 1 FROM slice wait WHERE wait.id IN (slice_out, slice_in)
          AND wait.name GLOB 'Waiting for rank *'
      )
"""
"""Those of the critical path and of waits belong to their rows, whatever is drawn."""


def test_default_layers(command: Command, profile: Profile) -> None:
    """A summary is steps and overlap; a detail is all but scopes, which --scopes adds."""
    arguments = (profile.path, "--group-by", "rank")
    assert layer_rows(command.picture(*arguments)) == {"Step Trace", "Overlap Analysis"}
    everything = set(LAYER_ROWS.values())
    detail = command.picture(*arguments, "--kind", "detail")
    assert layer_rows(detail) == everything - {"Scope Layer"}
    assert layer_rows(command.picture(*arguments, "--kind", "detail", "--scopes")) == everything
    assert detail.rows("SELECT count(*) > 0 FROM flow") == [(1,)]
    fewer = command.picture(*arguments, "--kind", "detail", "--layers", "hardware,cann")
    assert fewer.rows(ARROWS_OF_LAYERS) == [(0,)]
    assert detail.rows(ARROWS_OF_LAYERS) > [(0,)]


@pytest.mark.parametrize("kind", ["summary", "detail"])
@pytest.mark.parametrize("group", [None, "rank", "layer"])
def test_group_by(command: Command, profile: Profile, kind: str, group: str | None) -> None:
    """Rows are grouped by rank, or by layer where that is asked for."""
    asked = () if group is None else ("--group-by", group)
    picture = command.picture(profile.path, "--kind", kind, *asked)
    outer, inner = (
        ({"Rank 0", "Rank 1"}, {"Step Trace", "Overlap Analysis"})
        if group != "layer"
        else ({"Step Trace", "Overlap Analysis"}, {"Rank 0", "Rank 1"})
    )
    rows = {tuple(map(plain, row)) for row in drawn_rows(picture).values()}
    assert outer <= {row[0] for row in rows}
    assert inner <= {row[1] for row in rows if len(row) == 2}


def plain(name: str) -> str:
    """The name of a row without what puts it in its place, or says more of it."""
    return name.strip().lstrip("0123456789 ").partition(":")[0]


def test_merge_graphs(command: Command, profile: Profile) -> None:
    """Iterations of all graphs share a row and name their graph; apart, each graph has its own."""
    merged = drawn_slices(command.picture(profile.path), "Step Trace", "Rank 0", "Iterations")
    iterations = [one for one in merged if "Iteration" in one.name and "Refresh" not in one.name]
    assert {one.name for one in iterations} == {
        f"Graph {graph} Iteration {step}" for graph in (1, 3) for step in (1, 2, 3)
    }
    apart = drawn_slices(command.picture(profile.path, "--no-merge-graphs"), "Step Trace", "Rank 0")
    rows = {one.row[-1] for one in apart}
    assert {"Graph 1", "Graph 3"} <= rows
    assert "Iterations" not in rows
    for graph in (1, 3):
        of_graph = [one for one in apart if one.row[-1] == f"Graph {graph}"]
        assert {f"Iteration {step}" for step in (1, 2, 3)} <= {one.name for one in of_graph}
    spans = sorted((one.start_ns, one.end_ns) for one in iterations)
    assert spans == sorted((one.start_ns, one.end_ns) for one in profile.run.rank(0).iterations)


def drawn_args(picture: TraceProcessor) -> Counter[str]:
    """How many slices of hardware, communication and host carry each arg, by its last name."""
    found = picture.rows(
        "SELECT key, count(*) FROM slice JOIN args USING (arg_set_id)"
        " WHERE key NOT LIKE 'step.%' GROUP BY key"
    )
    return Counter({str(key).rpartition(".")[2]: int(count) for key, count in found})


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_args(command: Command, profile: Profile, suffix: str) -> None:
    """--args none, default and all: no args, a short set, and everything the source gives."""
    sizes, shown = {}, {}
    for args in ("none", "default", "all"):
        name = f"{args}{suffix}"
        report = command.report(profile.path, "--kind", "detail", "--args", args, "-o", name)
        sizes[args] = report["outputs"][0]["bytes"]
        shown[args] = drawn_args(command.loaded(name))
    tasks = sum(hardware_tasks(rank) for rank in profile.run.ranks)
    about = {"correlation_id", "sentence"}  # the colour, and whole sentences of the verdict
    assert shown["none"].keys() & shown["all"].keys() <= about
    assert shown["default"].keys() < shown["all"].keys()
    assert shown["default"]["task_type"] == tasks
    assert {"connection_id", "notify_id", "output_shapes"} <= shown["all"].keys()
    assert not {"connection_id", "notify_id"} & shown["default"].keys()
    assert sizes["none"] < sizes["default"] < sizes["all"]


# -- steps that nothing marks ----------------------------------------------------------------------


@dataclass(frozen=True)
class Unmarked:
    """A profile without step markers, and the operators that a user would name."""

    profile: Profile
    forward: str
    backward: str

    def expected(self) -> list[tuple[int, int]]:
        """Forward start and backward end of each iteration of rank 0."""
        return [
            (self.run_of(one, self.forward)[0], self.run_of(one, self.backward)[1])
            for one in self.profile.run.rank(0).iterations
        ]

    def run_of(self, iteration: Iteration, operator: str) -> tuple[int, int]:
        """Start and end of an operator in an iteration."""
        (found,) = [
            (task.start_ns, task.end_ns)
            for task, kernel in iteration.kernels
            if kernel.scope.endswith(f"/{operator}")
        ]
        return found


@pytest.fixture
def unmarked(shelf: ProfileShelf, tmp_path: Path) -> Unmarked:
    found = without_markers(shelf, tmp_path / "unmarked", ranks=1)
    names = [kernel.scope for _, kernel in next(found.run.rank(0).iterations).kernels]
    (forward,) = [name for name in names if name.endswith("BNTrainingUpdate-op2")]
    backward = next(name for name in names if name.startswith("Gradients/"))
    return Unmarked(found, forward.rpartition("/")[2], backward.rpartition("/")[2])


def forward_backward(picture: TraceProcessor) -> list[tuple[int, int]]:
    """Start and end of each FP/BP slice."""
    return [
        (one.start_ns, one.end_ns)
        for one in drawn_slices(picture, "Step Trace")
        if one.name == "FP/BP"
    ]


def test_no_markers_and_no_operators(command: Command, unmarked: Unmarked) -> None:
    """Without markers, data fetches and named operators there are no steps, and it is said."""
    outcome = command(unmarked.profile.path)
    assert outcome.code == 0
    assert "no step marks" in outcome.out
    report = command.report(unmarked.profile.path, "-o", "out.pftrace")
    assert whole_overlap(report, 0) == expected_overlap(unmarked.profile.run, 0)


@pytest.mark.parametrize(
    "way",
    [
        "options",
        "full names",
        "PROFILING_FP_START and PROFILING_BP_END",
        "FP_POINT and BP_POINT",
        "options over environment",
        "newer over older environment",
    ],
)
def test_named_operators(
    command: Command, unmarked: Unmarked, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The operators that begin forward and end backward come from options or the environment."""
    forward, backward = unmarked.forward, unmarked.backward
    options = ["--fp-start", forward, "--bp-end", backward]
    if way == "full names":
        (first,) = {
            kernel.scope
            for one in unmarked.profile.run.rank(0).iterations
            for _, kernel in one.kernels
            if kernel.scope.endswith(f"/{forward}")
        }
        options[1] = first
    if way == "options over environment":
        monkeypatch.setenv("PROFILING_FP_START", "absent")
        monkeypatch.setenv("BP_POINT", "absent")
    if "environment" not in way and " and " in way:
        start, end = way.split(" and ")
        monkeypatch.setenv(start, forward)
        monkeypatch.setenv(end, backward)
        options = []
    if way == "newer over older environment":
        monkeypatch.setenv("PROFILING_FP_START", forward)
        monkeypatch.setenv("PROFILING_BP_END", backward)
        monkeypatch.setenv("FP_POINT", "absent")
        monkeypatch.setenv("BP_POINT", "absent")
        options = []
    path = unmarked.profile.path
    assert forward_backward(command.picture(path, *options)) == unmarked.expected()
    report = command.report(path, *options, "-o", "out.pftrace")
    assert report["outputs"][0]["steps"] == [1, 2, 3]
    assert [row["step"] for row in report["overlap"]] == [None, 1, 2, 3]


def test_markers_win_over_operators(command: Command, profile: Profile) -> None:
    """A graph whose steps the device has marked keeps those marks."""
    named = ("--fp-start", "BNTrainingUpdate-op2", "--bp-end", "BNTrainingUpdate-op2")
    options = (profile.path, "--ranks", "0")
    marks = [(one.forward_start_ns, one.backward_end_ns) for one in profile.run.rank(0).iterations]
    assert forward_backward(command.picture(*options)) == sorted(marks)
    assert forward_backward(command.picture(*options, *named)) == sorted(marks)


def test_steps_from_data_fetches(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """Unnamed: forward starts after get_next, backward ends before the last AllReduce begins."""
    found = without_markers(shelf, tmp_path / "run", ranks=1)
    (trace,) = found.captures[0].glob("mindstudio_profiler_output/msprof_2*.json")
    change_events(
        trace,
        lambda event: (
            event | {"name": "Default/GetNext-op0"} if event["name"] == "MEMCPY_ASYNC" else event
        ),
    )
    expected = []
    for one in found.run.rank(0).iterations:
        computing = [task for task, _ in one.kernels]
        last = max(reduce.start_ns for reduce in one.collectives)
        before = [task for task in computing if task.start_ns < last]
        expected.append((computing[0].start_ns, before[-1].end_ns))
    assert forward_backward(command.picture(found.path)) == expected
