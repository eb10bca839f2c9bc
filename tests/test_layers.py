"""Proves that a layer is declared once: in a row of LAYERS, and in the function that paints it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

import timeline
from tests.support.drawn_slices import drawn_rows, drawn_slices
from tests.support.loaded_picture import LoadedPicture
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline.layers import (
    ARGS_MESSAGES,
    LAYERS,
    NOUNS,
    OF_NO_LAYER,
    SIZE_LAYERS,
    Layer,
    LayerName,
    SliceKind,
    spec_of,
)
from timeline.records.tables import Records
from timeline.tracks import detail, summary
from timeline.tracks.detail import ALL_PAINTERS

# -- nothing is forgotten --------------------------------------------------------------------------


def test_each_layer_has_one_row_and_one_painter() -> None:
    """Whoever adds a layer and forgets one of both is told here; arrows alone have no row."""
    options = [layer.option for layer in LAYERS]
    assert len(options) == len(set(options))
    assert set(options) - {None} == set(Layer) - {Layer.ARROWS}
    assert set(ALL_PAINTERS) == set(options)
    assert not set(summary.PAINTERS) & set(detail.PAINTERS)
    assert {option for option in summary.PAINTERS if option} == {
        layer.option for layer in LAYERS if layer.in_summary
    }


def test_the_names_that_type_checkers_know_are_the_values() -> None:
    assert get_args(LayerName) == tuple(layer.value for layer in Layer)


def test_each_kind_of_slice_is_of_a_layer() -> None:
    """Each has one noun, and its typed args, if any, one number and one extension."""
    kinds = {one.kind: one for layer in LAYERS for one in layer.slices}
    assert not set(kinds) & {one.kind for one in OF_NO_LAYER}
    kinds |= {one.kind: one for one in OF_NO_LAYER}
    assert set(kinds) == set(NOUNS) == set(SliceKind)
    for layer in LAYERS:
        assert all(kinds[one.kind] == one for one in layer.slices)
    assert len({message.number for message in ARGS_MESSAGES.values()}) == len(ARGS_MESSAGES)
    assert len({message.extension for message in ARGS_MESSAGES.values()}) == len(ARGS_MESSAGES)
    assert len(set(SIZE_LAYERS)) == len(SIZE_LAYERS) == len(SliceKind) + 1


def test_tables_of_layers_are_tables_of_records() -> None:
    fields = {field.name for field in dataclasses.fields(Records)}
    assert {table for layer in LAYERS for table in layer.tables} <= fields


def test_arrows_have_no_row() -> None:
    with pytest.raises(KeyError):
        spec_of(Layer.ARROWS)


# -- a layer more ----------------------------------------------------------------------------------

TABLE, PAINTER = "layers.py", "tracks/detail.py"
CHANGES = {
    TABLE: (
        ('    COUNTERS = "counters"\n', '    LONGEST = "longest"\n    COUNTERS = "counters"\n'),
        ('    "counters",\n', '    "longest",\n    "counters",\n'),
        (
            '    HOST_CALL = "host_call"\n',
            '    HOST_CALL = "host_call"\n    LONG_TASK = "long_task"\n',
        ),
        (
            "    LayerSpec(\n        Layer.FRAMEWORK,",
            """    LayerSpec(
        Layer.LONGEST,
        "Longest Tasks",
        5,
        "Every task again, those of all streams in one row.",
        (
            SliceSpec(
                SliceKind.LONG_TASK,
                "long tasks",
                Category.TASK,
                ArgsMessage("LongTask", "long", 9950, ("task_id",)),
            ),
        ),
        tables=("tasks",),
    ),
    LayerSpec(
        Layer.FRAMEWORK,""",
        ),
    ),
    PAINTER: (
        (
            "PAINTERS: Mapping[Layer | None, PaintLayer] = {\n",
            '''def _paint_longest(drawing: LayerDrawing) -> None:
    """Draw all tasks in one row."""
    records = drawing.rank.detail
    tasks = records.tasks
    drawn = SliceTable(
        tasks.start_ns,
        tasks.end_ns,
        tasks.name,
        SliceKind.LONG_TASK,
        [integers("task_id", tasks.task, NO_ID)],
    )
    drawing.painter.add_flat_row("All streams", drawing.add_row(), 0, drawn, "All of them.")


PAINTERS: Mapping[Layer | None, PaintLayer] = {
    Layer.LONGEST: _paint_longest,
''',
        ),
    ),
}
"""All that a layer more takes: what to replace, by what, in the two modules."""

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run a copy of the program that has a layer more, and give what it prints."""
    root = tmp_path_factory.mktemp("program")
    package = root / "timeline"
    shutil.copytree(
        Path(timeline.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, changes in CHANGES.items():
        path = package / name
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert text.count(old) == 1, f"{name}: {old!r}"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")

    def printed(*arguments: object) -> str:
        words = [sys.executable, "-m", "timeline", *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "100"}
        ran = subprocess.run(
            words, cwd=root, env=environment, capture_output=True, text=True, check=True
        )
        return ran.stdout

    return printed


def loaded(path: Path) -> TraceProcessor:
    return TraceProcessor.load(path.read_bytes())


@pytest.fixture(scope="module")
def picture(
    run: Run, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> LoadedPicture:
    """A detail with the layer more and all others, as the trace processor reads it."""
    target = tmp_path_factory.mktemp("drawn") / "detail.pftrace"
    run(shelf.get("mindstudio").path, "--kind", "detail", "--scopes", "-o", target)
    return LoadedPicture(loaded(target), is_json=False)


def test_a_layer_more_is_drawn_in_its_place(picture: LoadedPicture) -> None:
    """Behind the scopes, whose order is the next lower one, and before what follows."""
    layers = {
        track.path[1]: track.order
        for track in picture.tracks.values()
        if len(track.path) == 2 and track.path[0].startswith("Rank 0")
    }
    in_order = sorted(layers, key=lambda name: layers[name])
    assert in_order == [
        "Step Trace",
        "Overlap Analysis",
        "Ascend Hardware",
        "Communication",
        "Scope Layer",
        "Longest Tasks",
        "python3",
        "CANN",
        "Counters",
    ]


def test_a_layer_more_is_described(picture: LoadedPicture) -> None:
    said = {track.path[-1]: track.description for track in picture.tracks.values()}
    assert said["Longest Tasks"] == "Every task again, those of all streams in one row."


def test_a_layer_more_draws_its_slices_with_their_args(picture: LoadedPicture) -> None:
    """As many as there are tasks on streams, each with the same id, under the new message."""
    tasks = drawn_slices(picture.processor, "Rank 0", "Ascend Hardware")
    longest = drawn_slices(picture.processor, "Rank 0", "Longest Tasks")
    assert len(longest) == len(tasks) > 0
    told = picture.processor.rows(
        "SELECT ts, dur, extract_arg(arg_set_id, 'task.task_id'),"
        " extract_arg(arg_set_id, 'long.task_id') FROM slice"
    )
    of_tasks = sorted((*one[:2], one[2]) for one in told if one[2] is not None)
    of_longest = sorted((*one[:2], one[3]) for one in told if one[3] is not None)
    assert of_longest == of_tasks


def test_a_layer_more_can_be_chosen_and_left_out(
    run: Run, shelf: ProfileShelf, tmp_path: Path
) -> None:
    path = shelf.get("torch-db").path
    for chosen, drawn in (("steps,longest", True), ("steps,hardware", False)):
        target = tmp_path / f"{chosen}.pftrace"
        run(path, "--kind", "detail", "--layers", chosen, "-o", target)
        rows = set(drawn_rows(loaded(target)).values())
        assert any("Longest Tasks" in row for row in rows) is drawn
        assert any("Ascend Hardware" in row for row in rows) is not drawn


def test_a_layer_more_is_in_the_help(run: Run) -> None:
    said = " ".join(run("--help-all").split())
    assert "framework, scopes, longest, counters, arrows (default: those of the kind)" in said


def test_a_layer_more_is_counted(run: Run, shelf: ProfileShelf, tmp_path: Path) -> None:
    """Where a limit is kept, the report tells the resolution of its slices, under their kind."""
    path, target = shelf.get("torch-db").path, tmp_path / "small.pftrace"
    report = json.loads(run(path, "--kind", "detail", "--limit", "16KB", "--json", "-o", target))
    counted = {one["layer"]: one for one in report["resolution"]}
    task, long_task = counted["task"], counted["long_task"]
    assert long_task["exact"] + long_task["merged"] == task["exact"] + task["merged"] > 0
    labels = {drawn_slice.name for drawn_slice in drawn_slices(loaded(target), "Longest Tasks")}
    assert any(re.match(r"\d+ long tasks: ", label) for label in labels)
