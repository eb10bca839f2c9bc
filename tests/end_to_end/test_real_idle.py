"""Holds causes of idle time on real captures to the idle time that they are of."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from tests.support.places import needs_captures, real_capture
from tests.support.run_command import Command

CAPTURES = (
    "gpu/dlrm_kineto.tar.gz",
    "gpu/h100",
    "gpu/mi300",
    "gpu/nccl_parser_config",
    "gpu/sglang_decode",
    "gpu/torch_compile_triton",
    "gpu/trace_filter",
    "gpu/xdit_sd_3.5",
    "gpu-ranks/sst_long_a2a_optimizer_4.tar.gz",
    "mindspore-0.7-text",
    "mindspore-2.1",
    "mindspore-cluster-steps",
    "mindspore-raw-JOB1",
    "mindspore-run2",
    "mindspore-run3",
    "msprof-single/cann-2024",
    "msprof-single/cann-ffts",
    "msprof-single/cann9-add",
    "msprof-single/cann9-matmul",
    "torch-npu-db",
    "torch-npu-db-2024-10",
    "torch-npu-db-level0",
    "torch-npu-text",
    "trace-view-2024",
)

pytestmark = [pytest.mark.sweep, needs_captures]


def sums(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], int]:
    """The sum of causes by rank, graph and step."""
    found: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        found[row["rank"], row["graph"], row["step"]] += row["total_ns"]
        assert row["total_ns"] > 0
        assert row["gaps"] > 0
        calls_ns = [call["total_ns"] for call in row["calls"]]
        assert len(calls_ns) <= 5
        assert calls_ns == sorted(calls_ns, reverse=True)
        assert sum(calls_ns) <= row["total_ns"]
    return found


@pytest.mark.parametrize("name", CAPTURES)
def test_causes_of_every_capture_add_up_to_its_idle_time(command: Command, name: str) -> None:
    """In a summary and in a detail, of each rank and of each of its steps, to the nanosecond."""
    path = real_capture(name)
    summary = command.report(path)
    found = sums(summary["idle"])
    for row in summary["overlap"]:
        around_ns = (row["before_ns"] or 0) + (row["between_ns"] or 0)
        total_ns = found.pop((row["rank"], row["graph"], row["step"]), 0)
        if row["idle_ns"] is None:  # copies are not recorded, or nothing but small tables
            continue
        assert 0 <= total_ns - row["idle_ns"] <= around_ns
    assert not found
    assert command.report(path, "--kind", "detail", "--limit", "0")["idle"] == summary["idle"]
    assert_nothing_else_differs(summary, command.report(path, "--no-causes"))


def assert_nothing_else_differs(summary: dict[str, Any], without: dict[str, Any]) -> None:
    """A summary leaves out, and warns of, what it does without looking for causes."""
    assert summary["omitted"] == without["omitted"]
    assert of_host(summary["warnings"]) == of_host(without["warnings"])
    assert on_device(summary["overlap"]) == on_device(without["overlap"])
    assert without["idle"] == []


def on_device(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What depends neither on the clock of the host, which launches tell more exactly, nor on
    the waits of HCCL tasks."""
    of_causes = {"period_ns", "before_ns", "between_ns", "late_ns"}
    return [{name: row[name] for name in row.keys() - of_causes} for row in rows]


def of_host(warnings: list[str]) -> list[str]:
    """All but those on who waits in collectives, which HCCL tasks tell more of, and on streams
    that were launched before the recording, which calls tell."""
    told = ("collective", "begins in the middle")
    return [warning for warning in warnings if not any(part in warning for part in told)]
