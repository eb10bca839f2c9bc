"""Proves how operators and modules of two runs find each other by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from timeline.comparison import comparison as comparing
from timeline.comparison.pairs import (
    OperatorNames,
    missing_in_one_run,
    pair_framework_operators,
    pair_modules,
    pair_operator_memory,
)
from timeline.reports.comparison_rows import (
    framework_names,
    module_names,
    module_times,
    notable_memory,
)
from timeline.tables.table import Table

WHOLE = (1.0, 1.0)


def operators(*rows: tuple[str, str, int, int], size_bytes: int = 0) -> Table:
    """Rows of name, shapes, count and time; each allocated so much."""
    names, shapes, counts, times = zip(*rows, strict=True) if rows else ((),) * 4
    return Table(
        {
            "name": np.array(names, object),
            "shapes": np.array(shapes, object),
            "count": np.array(counts, np.int64),
            "total_ns": np.array(times, np.int64),
            "size_bytes": np.full(len(rows), size_bytes),
            "held_ns": np.full(len(rows), 10),
            "allocates": np.full(len(rows), int(size_bytes > 0)),
        }
    )


def told(table: Table, *columns: str) -> list[tuple[Any, ...]]:
    return list(zip(*(table[name].tolist() for name in columns), strict=True))


TIMES = ("name", "shapes", "base_count", "new_count", "base_ns", "new_ns", "delta_ns")


def test_operators_pair_by_name_and_what_changed_most_comes_first() -> None:
    """Rows of all ranks and shapes of a name are one; times are those of a step, counts of all."""
    base = operators(("aten::mm", "2", 2, 100), ("aten::mm", "3", 1, 100), ("aten::add", "", 4, 8))
    new = operators(("aten::mm", "2", 3, 300), ("aten::mul", "", 1, 600))
    paired = pair_framework_operators((base, new), (0.5, 0.25), OperatorNames())
    assert told(paired, *TIMES) == [
        ("aten::mul", None, 0, 1, 0, 150, 150),
        ("aten::mm", None, 3, 3, 100, 75, -25),
        ("aten::add", None, 4, 0, 4, 0, -4),
    ]
    assert paired["delta_count"].tolist() == [1, 0, -4]


def test_shapes_tell_operators_apart_only_where_they_are_matched() -> None:
    """Their memory is told by name alone."""
    sides = tuple(
        operators(("aten::mm", "2", 2, 100), ("aten::mm", "3", 1, 100), size_bytes=7)
        for _ in range(2)
    )
    names = OperatorNames(with_shapes=True)
    paired = pair_framework_operators((sides[0], sides[1]), WHOLE, names)
    assert told(paired, "name", "shapes", "base_count") == [
        ("aten::mm", "2", 2),
        ("aten::mm", "3", 1),
    ]
    memory = pair_operator_memory((sides[0], sides[1]), WHOLE, names)
    columns = ("name", "base_count", "base_bytes", "base_held_ns", "delta_bytes")
    assert told(memory, *columns) == [("aten::mm", 3, 14, 20, 0)]


@pytest.mark.parametrize("lacking", [0, 1])
def test_what_one_run_does_not_tell_is_not_compared(lacking: int) -> None:
    """A table without rows still has its columns."""
    one, none = operators(("aten::mm", "", 1, 1), size_bytes=5), operators()
    sides = (none, one) if lacking == 0 else (one, none)
    for pair in (pair_framework_operators, pair_operator_memory):
        assert not len(pair(sides, WHOLE, OperatorNames()))
        assert "delta_count" in pair(sides, WHOLE, OperatorNames()).columns
    unknown = operators(("aten::mm", "", 1, 1))
    assert not len(pair_operator_memory((one, unknown), WHOLE, OperatorNames()))


def test_names_of_the_user_join_operators() -> None:
    """Old names become new ones in both runs."""
    base = operators(("my::mm", "", 1, 100), ("aten::mm", "", 1, 10))
    paired = pair_framework_operators(
        (base, operators(("aten::mm", "", 2, 120))), WHOLE, OperatorNames({"my::mm": "aten::mm"})
    )
    assert told(paired, *TIMES) == [("aten::mm", None, 2, 2, 110, 120, 10)]


def test_gpus_and_npus_find_each_other() -> None:
    """Names that are built in count only between vendors."""
    gpu = operators(("aten::native_dropout", "", 1, 100))
    npu = operators(("npu::_npu_dropout", "", 1, 90))
    paired = pair_framework_operators((gpu, npu), WHOLE, OperatorNames(between_vendors=True))
    assert told(paired, "name", "delta_ns") == [("npu::_npu_dropout", -10)]
    assert len(pair_framework_operators((gpu, npu), WHOLE, OperatorNames())) == 2


def modules(*rows: tuple[str, str, int, int]) -> Table:
    paths, directions, own, total = zip(*rows, strict=True) if rows else ((),) * 4
    return Table(
        {
            "path": np.array(paths, object),
            "direction": np.array(directions, object),
            "self_ns": np.array(own, np.int64),
            "total_ns": np.array(total, np.int64),
        }
    )


def test_modules_pair_by_path_and_direction() -> None:
    """The class is that of the innermost; what is renamed is a path, a module, or a class."""
    base = modules(("Net_0", "forward", 1, 11), ("Net_0/Linear_2", "forward", 10, 10))
    new = modules(("GPT_0", "forward", 1, 31), ("GPT_0/Dense_2", "forward", 30, 30))
    names = OperatorNames({"Net_0": "GPT_0", "Linear": "Dense"})
    paired = pair_modules((base, new), WHOLE, names)
    columns = ("path", "direction", "class", "delta_self_ns", "delta_total_ns")
    assert told(paired, *columns) == [
        ("GPT_0/Dense_2", "forward", "Dense", 20, 20),
        ("GPT_0", "forward", "GPT", 0, 20),
    ]
    assert OperatorNames({"Net_0/Linear_2": "head"}).path("Net_0/Linear_2") == "head"


def test_modules_beyond_the_most_rows_are_told_of() -> None:
    """A warning says how many there are."""
    rows = modules(("A_0", "forward", 1, 1), ("B_0", "forward", 1, 1))
    (warning,) = comparing._left_out(rows, "module", 1)
    assert warning == "of 2 rows of modules, the 1 that changed most are kept."


def test_rows_say_what_they_are_of() -> None:
    """A module is told with its direction and its own time, an operator with its shapes."""
    paired = pair_modules(
        (modules(("Net_0", "backward", 1, 11)), modules(("Net_0", "backward", 3, 12))),
        WHOLE,
        OperatorNames(),
    )
    assert module_names(module_times(paired)) == ["backward: Net_0"]
    assert told(module_times(paired), "base_ns", "new_ns", "delta_ns") == [(1, 3, 2)]
    side = operators(("aten::mm", "2", 2, 100), ("aten::t", "", 2, 1))
    shaped = pair_framework_operators((side, side), WHOLE, OperatorNames(with_shapes=True))
    assert framework_names(shaped) == ["aten::mm 2", "aten::t"]


def test_memory_is_worth_a_row_where_it_changed() -> None:
    """By a share of all that is allocated; the largest change is first."""
    base = operators(("big", "", 1, 1), ("same", "", 1, 1), size_bytes=1000)
    new = operators(("big", "", 1, 1), ("big", "", 1, 1), ("same", "", 1, 1), size_bytes=1000)
    paired = pair_operator_memory((base, new), WHOLE, OperatorNames())
    assert notable_memory(paired, 5)["name"].tolist() == ["big"]
    assert not len(notable_memory(pair_operator_memory((base, base), WHOLE, OperatorNames()), 5))
    assert not len(notable_memory(Table({}), 5))


def test_what_one_run_alone_tells_is_said() -> None:
    """An empty table says why; where no run tells, or both do, there is nothing to say."""
    nothing, calls = operators(), operators(("aten::mm", "", 1, 1))
    allocating = operators(("aten::mm", "", 1, 1), size_bytes=8)
    net, none = modules(("Net_0", "forward", 1, 1)), modules()
    for both in ((nothing, none), (calls, none), (allocating, net)):
        assert list(missing_in_one_run((both[0], both[0]), (both[1], both[1]))) == []
    assert list(missing_in_one_run((allocating, calls), (net, none))) == [
        "new: has no memory of operators and no modules, so these are not compared."
    ]
    assert list(missing_in_one_run((nothing, allocating), (none, net))) == [
        "base: has no operators of a framework, so these are not compared."
    ]
    assert list(missing_in_one_run((allocating, calls), (none, net))) == [
        "base: has no modules, so these are not compared.",
        "new: has no memory of operators, so these are not compared.",
    ]
