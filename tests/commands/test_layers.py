"""Proves that layers, args and groups are drawn as the options say."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support.drawn_slices import drawn_rows, drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import (
    Profile,
)
from tests.support.run_command import Command, hardware_tasks

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


ARROWS_BESIDE_THE_PATH = """
    SELECT count(*) FROM flow JOIN slice ON slice.id = flow.slice_out
    JOIN track ON track.id = slice.track_id LEFT JOIN track AS above ON above.id = track.parent_id
    WHERE trim(coalesce(above.name, '')) != 'Critical path'
"""
"""Those of the critical path belong to its rows, whatever is drawn."""


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
    assert fewer.rows(ARROWS_BESIDE_THE_PATH) == [(0,)]
    assert detail.rows(ARROWS_BESIDE_THE_PATH) > [(0,)]


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
    assert shown["none"].keys() & shown["all"].keys() <= {"correlation_id"}  # tells the colour
    assert shown["default"].keys() < shown["all"].keys()
    assert shown["default"]["task_type"] == tasks
    assert {"connection_id", "notify_id", "output_shapes"} <= shown["all"].keys()
    assert not {"connection_id", "notify_id"} & shown["default"].keys()
    assert sizes["none"] < sizes["default"] < sizes["all"]
