"""Proves that what was merged, left out and moved is one line, or all of it on request."""

from __future__ import annotations

import pytest

from timeline.records.tables import Omission, OmissionCode
from timeline.reports.bookkeeping import bookkeeping_lines
from timeline.reports.report_rows import ResolutionRow

EXACT = ResolutionRow("step", 0, None, None, 12, 0, 0)
MERGED = ResolutionRow("host_call", 524_288, None, None, 957, 19_443, 1_394)
OMISSIONS = [
    Omission("samples that stay zero all along", rows, code=OmissionCode.IDLE_COUNTER)
    for rows in (1_000, 234)
]
CLOCKS = ["ranks 0-1 moved by their collectives, whose ends now differ by 881 ns"]


@pytest.mark.parametrize(
    ("omissions", "resolutions", "aligned", "line"),
    [
        ([], [], False, []),
        ([], [EXACT], False, []),
        (OMISSIONS, [], False, ["  1 234 records left out: -v says more"]),
        (
            OMISSIONS,
            [EXACT, MERGED],
            True,
            ["  1 layer merged (size limit), 1 234 records left out, clocks aligned: -v says more"],
        ),
    ],
)
def test_bookkeeping_is_one_line_or_none(
    omissions: list[Omission], resolutions: list[ResolutionRow], aligned: bool, line: list[str]
) -> None:
    """Nothing is said where nothing was done; how clocks agree as recorded is nothing."""
    found = bookkeeping_lines(omissions, resolutions, (), CLOCKS, aligned=aligned, verbose=False)
    assert found == line


def test_all_of_it_is_told_where_that_is_asked() -> None:
    """Clocks, each layer, and each reason."""
    lines = bookkeeping_lines(OMISSIONS, [EXACT, MERGED], (), CLOCKS, aligned=True, verbose=True)
    assert lines == [
        f"  clocks: {CLOCKS[0]}",
        "  step: exact (12 slices)",
        "  host call: 524.288 us (957 slices exact, 19 443 slices merged into 1 394)",
        "  left out: 1 234 records, samples that stay zero all along",
    ]
