"""Holds sums of host calls of real captures to what the profiler itself sums up."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import timeline
from tests.support.places import DATA

CAPTURES = sorted((DATA / "msprof-single").glob("*/PROF*/mindstudio_profiler_output"))
pytestmark = pytest.mark.skipif(
    not CAPTURES, reason=f"the real captures are not beside the project, in {DATA}"
)
NOT_IN_TRACES = "aclrtSetDevice"
"""A call of the oldest captures that would have lasted days, which their traces leave out."""


def sums_of(path: Path) -> dict[str, tuple[int, int]]:
    """Count and total ns of the calls of CANN by name."""
    with timeline.open_profile(path) as profile:
        rows = profile.table("host_calls", by="name").to_dicts()
    return {row["name"]: (row["count"], row["total_ns"]) for row in rows if row["layer"] == "CANN"}


def filed_sums(output: Path) -> dict[str, tuple[int, int]]:
    """The same from api_statistic, whose times are microseconds with three decimals."""
    (path,) = output.glob("api_statistic_*.csv")
    sums: dict[str, tuple[int, int]] = {}
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            count, total_ns = sums.get(row["API Name"], (0, 0))
            own_ns = round(float(row["Time(us)"]) * 1000)
            sums[row["API Name"]] = count + int(row["Count"]), total_ns + own_ns
    return sums


@pytest.mark.parametrize("output", CAPTURES, ids=lambda output: output.parent.name[:27])
def test_sums_of_calls_are_those_of_the_profiler(output: Path) -> None:
    """In a database to the nanosecond, and in a trace but for the rounding of each call."""
    wanted = filed_sums(output)
    for database in output.parent.glob("msprof_*.db"):
        assert sums_of(database) == wanted
    if output.parent.parent.name == "cann-2024":
        del wanted[NOT_IN_TRACES]
    found = sums_of(output)
    assert {name: count for name, (count, _) in found.items()} == {
        name: count for name, (count, _) in wanted.items()
    }
    for name, (count, total_ns) in found.items():
        assert abs(total_ns - wanted[name][1]) <= count
