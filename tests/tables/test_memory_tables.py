"""Proves what is told of memory: of graphs as planned, and of allocations as they happened."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import timeline
from simulator.model import Iteration, RankRun
from simulator.writers.companions.memory import allocated, allocations, write_memory_tables
from simulator.writers.mindspore.tables.memory_graphs import (
    CAPACITY_BYTES,
    STATIC_BYTES,
    graph_memory,
    write_memory_graphs,
)
from tests.support.html_page import read
from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import DATA
from tests.support.profile_shelf import Copier, Profile
from timeline.cli.main import main

SAMPLES = (
    "SELECT counter.ts, counter.value FROM counter JOIN track ON counter.track_id = track.id"
    " WHERE track.name = '{}' ORDER BY counter.ts"
)


@pytest.fixture
def planned(copied: Copier) -> Profile:
    """A profile with tasks of two graphs, and what those are to hold beside it."""
    made = copied("mindspore-2.1", graphs=(1, 2), ops_per_step=12)
    for rank in made.run.ranks:
        write_memory_graphs(made.run, rank, made.path)
    (made.path / "step_trace_point_info.json").write_text(json.dumps(_points(made.run.ranks[0])))
    return made


@pytest.fixture(params=["torch-text", "torch-db"])
def recorded(request: pytest.FixtureRequest, copied: Copier) -> Profile:
    """A profile whose allocations were recorded."""
    made = copied(request.param)
    for rank, capture in zip(made.run.ranks, made.captures, strict=True):
        write_memory_tables(made.run, rank, capture / "ASCEND_PROFILER_OUTPUT")
    return made


def _points(rank: RankRun) -> dict[str, str]:
    """The points of a step trace, at operators of its first graph."""
    first, *_, last = next(iter(rank.iterations)).kernels
    return {"fp_start": first[1].scope, "bp_end": last[1].scope}


def _use(iteration: Iteration, rank: RankRun) -> list[int]:
    """What the graph of an iteration holds at each of its operators, by plain sums."""
    graph = graph_memory(rank, iteration.graph)
    last = len(graph.nodes) - 1
    found = [STATIC_BYTES] * len(graph.nodes)
    for tensor in graph.tensors:
        first = 0 if tensor.life in ("LifeLongGraphAll", "LifeLongGraphStart") else tensor.first
        end = last if tensor.life in ("LifeLongGraphAll", "LifeLongGraphEnd") else tensor.last
        for place in range(first, end + 1):
            found[place] += tensor.size_bytes
    return found


def test_graphs_are_rows_with_their_peak_and_points(planned: Profile) -> None:
    """A row per rank and graph; points are told for the graph that has such operators."""
    with timeline.open_profile(planned.path) as profile:
        table, rows = profile.memory_graphs(), profile.memory_graphs().to_dicts()
        operators = profile.memory()
        second = profile.memory_graphs(timeline.Selection(graphs=frozenset({2})))
    points = {key: scope.rpartition("/")[2] for key, scope in _points(planned.run.ranks[0]).items()}
    assert len(table) == 4
    for row in rows:
        rank = planned.run.rank(row["rank"])
        iteration = next(one for one in rank.iterations if one.graph == row["graph"])
        graph, use = graph_memory(rank, iteration.graph), _use(iteration, rank)
        peak = use.index(max(use))
        assert row == {
            "rank": rank.rank,
            "graph": graph.id,
            "static_bytes": STATIC_BYTES,
            "peak_bytes": max(use),
            "peak_node": peak,
            "peak_operator": graph.nodes[peak].name,
            "capacity_bytes": CAPACITY_BYTES,
            "nodes": len(graph.nodes),
            "tensors": len(graph.tensors),
            "fp_start": points["fp_start"] if graph.id == 1 else None,
            "bp_end": points["bp_end"] if graph.id == 1 else None,
        }
        its = (operators["rank"] == rank.rank) & (operators["graph"] == graph.id)
        assert operators["use_bytes"][its].tolist() == use
        assert operators["name"][its].tolist() == [node.name for node in graph.nodes]
    assert second.to_dicts() == [row for row in rows if row["graph"] == 2]


def test_the_counter_has_a_value_at_the_start_of_each_operator(
    planned: Profile, tmp_path: Path
) -> None:
    """In order of time the values are those of the operators, once an iteration."""
    output = tmp_path / "t.pftrace"
    timeline.export(planned.path, output, kind="detail", selection=timeline.Selection(ranks=[0]))
    rank = planned.run.rank(0)
    processor = TraceProcessor.load(output.read_bytes())
    for graph in planned.run.graphs:
        found = processor.rows(SAMPLES.format(f"Graph {graph}"))
        wanted = []
        for iteration in (one for one in rank.iterations if one.graph == graph):
            starts = [task.start_ns for task, _ in iteration.kernels]
            wanted += list(zip(starts, _use(iteration, rank), strict=True))
        shift = found[0][0] - wanted[0][0]
        assert found == [(start_ns + shift, float(use)) for start_ns, use in wanted]


def test_operators_without_tasks_are_counted(
    planned: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the plan is of another network, nothing is drawn of it and each operator is told."""
    other = planned.path / "memory_usage_0.pb"
    other.write_bytes(other.read_bytes().replace(b"-op", b"-xx"))
    report = _report(planned.path, tmp_path, capsys, "--kind", "detail", "--ranks", "0")
    rank = planned.run.rank(0)
    nodes = sum(len(graph_memory(rank, graph).nodes) for graph in planned.run.graphs)
    (told,) = [one for one in report["omitted"] if "whose memory is known" in one["reason"]]
    assert (told["rows"], told["loss"]) == (nodes, False)
    assert len(report["memory_graphs"]) == 2


def _report(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str
) -> dict[str, Any]:
    assert main([str(path), "-o", str(tmp_path / "t.pftrace"), "--force", "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_allocations_are_rows_with_what_was_held_then(recorded: Profile) -> None:
    """Of each allocation its size and what all hold; who is there at the peak; sums agree."""
    made = recorded
    with timeline.open_profile(made.path) as profile:
        graphs, operators = profile.memory_graphs(), profile.memory()
        tensors = profile.memory(by="tensor")
        plain = profile.overlap()
    assert graphs["rank"].tolist() == plain["rank"].tolist()
    for row in graphs.to_dicts():
        rank = made.run.rank(row["rank"])
        totals = dict(allocated(rank))
        made_here = sorted(allocations(rank), key=lambda one: one.taken_ns)
        assert row["peak_bytes"] == max(totals.values())
        assert row["tensors"] == len(made_here)
        assert row["graph"] is row["static_bytes"] is row["capacity_bytes"] is None
        its = operators.take(operators["rank"] == rank.rank)
        assert sorted(its["size_bytes"].tolist()) == sorted(one.size_bytes for one in made_here)
        assert its["use_bytes"].tolist() == [totals[one.taken_ns] for one in made_here]
        changes = np.diff([totals[one.taken_ns] for one in made_here]).tolist()
        assert its["change_bytes"].tolist() == [None, *changes]
        peak_ns = max(totals, key=lambda time_ns: (totals[time_ns], -time_ns))
        alive = [
            one.size_bytes
            for one in made_here
            if one.taken_ns <= peak_ns
            and (one.given_back_ns is None or one.given_back_ns > peak_ns)
        ]
        held = tensors.take((tensors["rank"] == rank.rank) & (tensors["at_peak"] == True))  # noqa: E712
        assert sorted(held["size_bytes"].tolist()) == sorted(alive)


def test_selected_steps_have_their_own_allocations(recorded: Profile) -> None:
    """The allocations of a step are those in its time, from its first call to its last task."""
    made = recorded
    step = made.run.rank(0).steps[1]
    with timeline.open_profile(made.path) as profile:
        whole = profile.memory(timeline.Selection(ranks=[0]))
        part = profile.memory(timeline.Selection(ranks=[0], steps=[step.id]))
    its = {task.start_ns for iteration in step.iterations for task, _ in iteration.kernels}
    own = [
        one.size_bytes
        for one in allocations(made.run.rank(0))
        if any(0 < start_ns - one.taken_ns < 1000 for start_ns in its)
    ]
    assert own
    assert len(own) <= len(part) < len(whole)
    assert not Counter(own) - Counter(part["size_bytes"].tolist())


def test_a_summary_reads_no_allocations_and_a_page_shows_them(
    recorded: Profile, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a page nothing is told of memory; with one, the largest of what is held."""
    page = tmp_path / "page.html"
    assert _report(recorded.path, tmp_path, capsys)["memory_graphs"] == []
    found = _report(recorded.path, tmp_path, capsys, "--report", str(page))["memory_graphs"]
    assert [row["rank"] for row in found] == [0, 1]
    tables = read(page.read_bytes()).tables
    assert tables["memory-graphs"]["rows"] == 2
    assert 0 < tables["memory-held-0"]["rows"] <= 50


def test_a_page_shows_the_graphs_of_the_rank_that_holds_most(
    planned: Profile, tmp_path: Path
) -> None:
    """A curve for each graph with FP start and BP end, and what is held at its peak."""
    page = tmp_path / "page.html"
    timeline.export(planned.path, tmp_path / "t.pftrace", report=page)
    text = page.read_bytes()
    assert b"Memory of graphs" in text
    assert text.count(b"FP start") == text.count(b"BP end") == 1, "of one graph"
    tables = read(text).tables
    assert tables["memory-graphs"]["rows"] == 4
    assert {"memory-held-0", "memory-held-1"} <= tables.keys()


def test_a_real_database_tells_the_same_of_each_allocation() -> None:
    """OP_MEMORY has the rows that operator_memory.csv has of the same program."""
    path = DATA / "torch-npu-db"
    if not path.exists():
        pytest.skip("torch-npu-db does not lie beside the checkout")
    with timeline.open_profile(path) as profile:
        graphs, operators = profile.memory_graphs(), profile.memory()
    assert graphs["peak_bytes"].tolist() == [1263251456, 1322295296]
    assert graphs["tensors"].tolist() == [184, 184]
    assert operators.to_dicts()[2] == {
        "rank": 0,
        "graph": None,
        "node": None,
        "name": "aten::_convolution",
        "use_bytes": 1026339840,
        "size_bytes": 25609728,
        "change_bytes": 25609728,
    }


@pytest.mark.parametrize("rank", [0, 1])
def test_a_real_run_held_most_where_its_record_says(rank: int) -> None:
    """Of torch_npu the peak is that of all allocators, and allocations have its own totals."""
    path = DATA / "torch-npu-text"
    if not path.exists():
        pytest.skip("torch-npu-text does not lie beside the checkout")
    with timeline.open_profile(path) as profile:
        chosen = timeline.Selection(ranks=[rank])
        (row,) = profile.memory_graphs(chosen).to_dicts()
        operators, tensors = profile.memory(chosen), profile.memory(chosen, by="tensor")
    output = path / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    lines = (output / "memory_record.csv").read_text().splitlines()[1:]
    totals = [float(line.split(",")[2]) for line in lines if line.split(",")[2]]
    assert row["peak_bytes"] == round(max(totals) * (1 << 20)) == 1322299392
    assert row["tensors"] == len(operators) == len(tensors) == 184
    held = sum(tensors["size_bytes"][tensors["at_peak"].astype(bool)].tolist())
    assert 0 < held < row["peak_bytes"]
