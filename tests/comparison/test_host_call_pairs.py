"""Proves how host calls of two runs are paired by layer and name."""

from __future__ import annotations

from pathlib import Path

import timeline
from tests.support.profile_shelf import ProfileShelf
from timeline.comparison.pairs import pair_host_calls
from timeline.reports.comparison_rows import host_call_names
from timeline.tables.calls import HOST_CALLS_BY_NAME
from timeline.tables.table import Table


def calls(*rows: tuple[str | None, str | None, int, int]) -> Table:
    """Rows of layer, name, count and total time."""
    return HOST_CALLS_BY_NAME.of_rows(
        (0, layer, name, count, total_ns, 0, 0, 0, 0, 0.0) for layer, name, count, total_ns in rows
    )


def test_calls_pair_by_layer_and_name_and_what_changed_most_comes_first() -> None:
    """Times are those of a step, counts of all; a name of another layer is another call."""
    base = calls(("CANN", "launch", 4, 400), ("Python", "launch", 1, 10), ("CANN", None, 9, 90))
    new = calls(("CANN", "launch", 8, 1600), ("CANN", "free", 2, 20))
    paired = pair_host_calls((base, new), (0.5, 0.25))
    columns = ("layer", "name", "base_count", "new_count", "delta_count", "base_ns", "new_ns")
    rows = list(zip(*(paired[name].tolist() for name in (*columns, "delta_ns")), strict=True))
    assert rows == [
        ("CANN", "launch", 4, 8, 4, 200, 400, 200),
        ("CANN", None, 9, 0, -9, 45, 0, -45),
        ("CANN", "free", 0, 2, 2, 0, 5, 5),
        ("Python", "launch", 1, 0, -1, 5, 0, -5),
    ]
    assert host_call_names(paired)[:2] == ["CANN: launch", "CANN: all others"]
    assert not len(pair_host_calls((base, calls()), (1, 1)))


def test_runs_of_other_layouts_pair_all_calls_of_cann(shelf: ProfileShelf) -> None:
    """Traces spell the level before names, databases do not; rows are the same."""
    tables = []
    for layout in ("torch-db", "torch-text"):
        with timeline.open_profile(shelf.get(layout).path) as profile:
            tables.append(profile.host_calls(by="name"))
    paired = pair_host_calls((tables[0], tables[1]), (1, 1))
    cann = paired.take(paired["layer"] == "CANN")
    assert len(cann)
    assert (cann["base_count"] == cann["new_count"]).all()
    assert not cann["delta_ns"].any()


def test_a_comparison_has_the_calls_of_ordinary_steps(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Of a run with itself nothing changes, and times are those of a step."""
    path = shelf.get("torch-db").path
    calls_of_both = timeline.compare(path, path, tmp_path / "t.pftrace").comparison.host_calls
    assert len(calls_of_both)
    assert not calls_of_both["delta_ns"].any()
    assert (calls_of_both["base_count"] > 0).any()
