"""Proves that records of extremes break none of the promises of exports."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.oracles import check_export, check_limited, load
from tests.fuzz.records_runs import export_records, outcome_of
from tests.support.extreme_records import ExtremeSource, extreme_sources
from timeline.encoders.formats import FORMATS
from timeline.errors import TimelineError


@pytest.mark.parametrize("first", (0, 15))
def test_runs_of_the_program_find_nothing(tmp_path: Path, first: int) -> None:
    """The first of those that `python tests/fuzz records` makes and that load what they write."""
    for number in range(first, first + 15):
        fault = outcome_of(number, tmp_path, whole=True).fault
        assert fault is None, f"run {number}: {fault.told}"


def test_short_runs_of_the_program_find_nothing(tmp_path: Path) -> None:
    """The first ones that draw and encode alone; most of them draw something."""
    outcomes = [outcome_of(number, tmp_path, whole=False) for number in range(150)]
    for number, outcome in enumerate(outcomes):
        assert outcome.fault is None, f"run {number}: {outcome.fault.told}"
    assert sum(outcome.drew for outcome in outcomes) > 75


@given(extreme_sources(), st.sampled_from([form.suffix for form in FORMATS]), st.floats(0.1, 1.1))
@settings(max_examples=12)
def test_any_records_are_refused_or_drawn_as_promised(
    tmp_path_factory: pytest.TempPathFactory,
    sources: tuple[ExtremeSource, ...],
    suffix: str,
    share: float,
) -> None:
    """In full, and within any limit, which merges what does not fit."""
    directory = tmp_path_factory.mktemp("records")
    options = {"kind": "detail", "args": "all"}
    try:
        exact = load(export_records(sources, directory / f"whole{suffix}", options | {"limit": 0}))
        check_export(exact)
        if not exact.files:
            return
        limit = max(1, int(exact.report.outputs[0].size_bytes * share))
        made = load(
            export_records(sources, directory / f"part{suffix}", options | {"limit": limit})
        )
        check_export(made)
        check_limited(made, exact)
    except TimelineError:
        return
