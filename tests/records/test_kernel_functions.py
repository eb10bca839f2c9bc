"""Proves that names of kernels are taken apart, whatever they hold."""

from __future__ import annotations

from timeline.records.task_kinds import function_parts


def test_a_mangled_name_with_endless_digits() -> None:
    """The length of a part is no longer than a name can be, so such a name has no such part."""
    assert function_parts("_Z3foov") == ["foo"]
    assert "foo" not in function_parts("_Z" + "9" * 5000 + "foo")
