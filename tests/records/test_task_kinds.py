"""Proves that task types are known, and functions are found in names of GPU kernels."""

from __future__ import annotations

import pytest

from timeline.columns.strings import StringPool
from timeline.records.task_kinds import compute_by_type, function_parts


@pytest.mark.parametrize(
    ("kind", "named", "unnamed"),
    [
        ("AI_CORE", True, True),
        ("AI_VECTOR_CORE", True, True),
        ("MIX_AIC", True, True),
        ("DSA_SQE", True, True),
        ("KERNEL_AICORE", True, True),
        ("KERNEL_AIVEC", True, True),
        ("KERNEL_MIX_AIV", True, True),
        ("KERNEL_OF_TOMORROW", True, True),
        ("AI_CPU", True, False),
        ("AI_CPU_SQE", True, False),
        ("KERNEL_AICPU", True, False),
        ("TASK_TIMEOUT_SET", False, False),
        ("EVENT_WAIT", False, False),
        ("MEMCPY_ASYNC", False, False),
        ("PLACE_HOLDER_SQE", False, False),
        ("Other", False, False),
        ("", False, False),
    ],
)
def test_types_that_compute(kind: str, named: bool, unnamed: bool) -> None:
    """With a name of its own, and where no name was recorded."""
    strings = StringPool()
    types = strings.codes([kind])
    assert compute_by_type(types, strings, strings.codes(["a name"])).tolist() == [named]
    assert compute_by_type(types, strings).tolist() == [unnamed]


@pytest.mark.parametrize("kind", ["KERNEL_AICORE", "KERNEL_AICPU", "KERNEL_AIVEC", "AI_CPU"])
def test_a_kernel_called_by_its_type_ran_no_operator(kind: str) -> None:
    strings = StringPool()
    types = strings.codes([kind, kind])
    assert not compute_by_type(types, strings, strings.codes([kind, ""])).any()


def test_a_mangled_name_with_endless_digits() -> None:
    """The length of a part is no longer than a name can be, so such a name has no such part."""
    assert function_parts("_Z3foov") == ["foo"]
    assert "foo" not in function_parts("_Z" + "9" * 5000 + "foo")
