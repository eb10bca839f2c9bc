"""Proves how classes of work of two runs are paired, and that what is not known is not none."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.comparison.parts import pair_classes, select_classes, select_parts, with_classes
from timeline.tables.table import Table

PARTS = Table.of_rows(
    {"metric": object, "part_of": object, "base_ns": int, "new_ns": int, "delta_ns": int},
    [("end to end", "", 100, 120, 20), ("matmul", "end to end", 40, None, None)],
)
_COLUMNS: dict[str, type] = {
    "rank": int,
    "by": object,
    "metric": object,
    "count": int,
    "total_ns": int,
}


def classes(*rows: tuple[int, str, str, int | None, int | None]) -> Table:
    return Table.of_rows(_COLUMNS, rows)


def paired(base: Table, new: Table, shares: tuple[float, float] = (1, 1)) -> dict[Any, Any]:
    return {(row["by"], row["metric"]): row for row in pair_classes((base, new), shares).to_dicts()}


def test_times_are_means_and_counts_are_sums() -> None:
    base = classes((0, "kernel", "matmul", 3, 300), (1, "kernel", "matmul", 5, 500))
    new = classes((0, "kernel", "matmul", 4, 100))
    (row,) = pair_classes((base, new), (1 / 4, 1 / 2)).to_dicts()
    assert row == {
        "metric": "matmul",
        "part_of": "",
        "base_ns": 200,
        "new_ns": 50,
        "delta_ns": -150,
        "by": "kernel",
        "base_count": 8,
        "new_count": 4,
    }


def test_what_one_rank_does_not_tell_its_run_does_not() -> None:
    """Nor what a run has no row of; the other run is told nevertheless."""
    base = classes((0, "launch", "cube", 3, 30), (1, "launch", "cube", None, None))
    new = classes((0, "launch", "cube", 7, 70), (0, "launch", "lccl", 0, 0))
    rows = paired(base, new)
    cube, lccl = rows["launch", "cube"], rows["launch", "lccl"]
    assert [cube[name] for name in ("base_ns", "base_count", "delta_ns")] == [None] * 3
    assert (cube["new_ns"], cube["new_count"]) == (70, 7)
    assert (lccl["base_ns"], lccl["new_ns"]) == (None, 0)


@pytest.mark.parametrize("nothing", [classes(), classes((0, "kernel", "matmul", None, None))])
def test_runs_that_tell_no_class_have_no_rows(nothing: Table) -> None:
    assert not len(pair_classes((nothing, nothing), (1, 1)))


def test_parts_stay_as_they_are_beside_classes() -> None:
    """Although a class may be called as a part is."""
    one = classes((0, "kernel", "matmul", 3, 30), (0, "launch", "matmul", 0, 0))
    overall = with_classes(PARTS, pair_classes((one, one), (1, 1)))
    assert select_parts(overall).to_dicts() == PARTS.to_dicts()
    assert [row["by"] for row in overall.to_dicts()] == [None, None, "kernel", "launch"]
    assert [row["base_count"] for row in overall.to_dicts()] == [None, None, 3, 0]
    assert [row["metric"] for row in select_classes(overall, "kernel").to_dicts()] == ["matmul"]
    assert not len(select_classes(overall, "launch"))


def test_a_whole_of_an_older_file_has_no_classes() -> None:
    assert select_parts(PARTS).to_dicts() == PARTS.to_dicts()
    assert not len(select_classes(PARTS, "launch"))


_ROWS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["kernel", "launch"]),
        st.sampled_from(["matmul", "cube"]),
        st.integers(0, 9),
        st.integers(0, 10**12),
    )
)


@given(_ROWS, _ROWS)
def test_nothing_is_lost_in_pairs(base: Any, new: Any) -> None:
    rows = paired(classes(*base), classes(*new)).values()
    for name, side in (("base", base), ("new", new)):
        assert sum(row[f"{name}_count"] or 0 for row in rows) == sum(row[3] for row in side)
        assert sum(row[f"{name}_ns"] or 0 for row in rows) == sum(row[4] for row in side)
