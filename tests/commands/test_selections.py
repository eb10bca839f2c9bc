"""Proves that what is chosen is drawn and counted, and nothing besides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from simulator.model import Iteration, RankRun
from simulator.overlap import expected_overlap, sweep, totals
from tests.support.drawn_slices import drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import (
    Profile,
    ProfileShelf,
)
from tests.support.run_command import OVERLAP_FIELDS, Command, overlap_of, whole_overlap


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
    assert "outside the selection" in outcome.err


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
