"""Proves that what was merged, left out and moved is one line, or all of it on request."""

from __future__ import annotations

import pytest

from timeline.fitting.limits import LimitName
from timeline.records.tables import Omission, OmissionCode
from timeline.reports.report_rows import ExactStep, ResolutionRow, bookkeeping_lines, format_merged

EXACT = ResolutionRow("step", 0, None, None, 12, 0, 0)
MERGED = ResolutionRow("host_call", 524_288, None, None, 957, 19_443, 1_394)
OMISSIONS = [
    *(
        Omission("ops of a lost file", rows, loss=True, code=OmissionCode.DAMAGED)
        for rows in (1_000, 234)
    ),
    Omission("samples that stay zero all along", 77, code=OmissionCode.IDLE_COUNTER),
]
CLOCKS = ["ranks 0-1 moved by their collectives, whose ends now differ by 881 ns"]


@pytest.mark.parametrize(
    ("omissions", "resolutions", "aligned", "said"),
    [
        ([], [], False, None),
        ([], [EXACT], False, None),
        (OMISSIONS, [], False, "1 234 records left out"),
        (OMISSIONS[2:], [], False, None),
        (
            OMISSIONS,
            [EXACT, MERGED],
            True,
            "1 layer merged to keep the limit of events; --max-events 0 draws all, "
            "1 234 records left out, clocks aligned",
        ),
    ],
)
def test_bookkeeping_is_one_line_or_none(
    omissions: list[Omission], resolutions: list[ResolutionRow], aligned: bool, said: str | None
) -> None:
    """Nothing is said where nothing was done; how clocks agree as recorded is nothing."""
    found = bookkeeping_lines(
        omissions, resolutions, (), "events", CLOCKS, aligned=aligned, verbose=False
    )
    assert found == ([] if said is None else [f"  {said}: -v says more"])


def test_steps_are_said_to_be_exact_on_those_ranks_alone_that_they_are_exact_on() -> None:
    steps = [ExactStep(1, (0,)), ExactStep(2, (0, 1, 2)), ExactStep(3, (0,))]
    (line,) = bookkeeping_lines([], [MERGED], steps, "bytes", (), aligned=False, verbose=False)
    of_ranks = "step 2 of ranks 0-2; steps 1,3 of rank 0"
    merged = f"  1 layer merged to keep the size limit (nothing in {of_ranks}); --limit 0"
    assert line.startswith(merged)


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("bytes", "size limit"),
        ("events", "limit of events"),
        ("memory", "limit of a viewer's memory"),
    ],
)
def test_the_limit_that_binds_is_named(limit: LimitName, said: str) -> None:
    assert format_merged(3, limit) == f"3 layers merged to keep the {said}"


def test_all_of_it_is_told_where_that_is_asked() -> None:
    """Clocks, each layer, and each reason."""
    lines = bookkeeping_lines(
        OMISSIONS, [EXACT, MERGED], (), "bytes", CLOCKS, aligned=True, verbose=True
    )
    assert lines == [
        f"  clocks: {CLOCKS[0]}",
        "  1 layer merged to keep the size limit",
        "  step: exact (12 slices)",
        "  host call: 524.288 us (957 slices exact, 19 443 slices merged into 1 394)",
        "  left out: 1 234 records, ops of a lost file",
        "  left out: 77 records, samples that stay zero all along",
    ]
