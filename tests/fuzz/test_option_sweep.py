"""Proves that options at their extremes are refused by name, in the command and in the library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.option_sweep import OptionCase, option_cases, try_option, write_profile

MANY_DIGITS = "9" * 5000
"""More than Python makes a number of."""
VALUED = ("--ranks", "--window", "--limit", "--max-events", "--assign-rank", "--offset", "--layers")


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small profile of two ranks."""
    return write_profile(tmp_path_factory.mktemp("profile"))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((option, "--") for option in VALUED),
        *(("--limit", digits) for digits in ("9" * 400, MANY_DIGITS, f"0.{MANY_DIGITS}")),
        *(("--max-events", digits) for digits in ("9" * 400, MANY_DIGITS)),
        ("--ranks", MANY_DIGITS),
        ("--offset", "²=1us"),
        ("--offset", f"0={MANY_DIGITS}"),
        ("--assign-rank", "x=²"),
        ("--assign-rank", f"x={MANY_DIGITS}"),
        ("--jobs", "²"),
        ("--window", f"{MANY_DIGITS}:"),
    ],
)
def test_the_command_refuses(option: str, value: str, capture: Path, tmp_path: Path) -> None:
    """No value, digits that are none of a number, and more of them than a number has."""
    assert try_option(OptionCase("tlexport", option, value), capture, tmp_path) == "refused"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("ranks", ()), ("window", 0), ("limit", "9" * 400), ("max_events", 1 << 64)),
        *(("limit", 0.5), ("max_events", float("nan"))),
        *(("offset", 0), ("offset", True), ("assign_rank", "N/A"), ("assign_rank", [1, 1])),
    ],
)
def test_the_library_refuses(option: str, value: Any, capture: Path, tmp_path: Path) -> None:
    """No rank at all, and what is no window, no limit and no mapping."""
    case = OptionCase("timeline.export", option, value)
    assert try_option(case, capture, tmp_path) == "refused"


@pytest.mark.parametrize("value", ["²", "3", MANY_DIGITS])
def test_a_comparison_refuses_numbers_of_kernels(value: str, capture: Path, tmp_path: Path) -> None:
    """Below the least, and no numbers."""
    case = OptionCase("tlexport compare", "--max-kernels", value)
    assert try_option(case, capture, tmp_path) == "refused"


@pytest.mark.filterwarnings("ignore::timeline.TimelineWarning")
@given(case=st.sampled_from(list(option_cases())))
def test_any_value_draws_or_is_refused(
    case: OptionCase, capture: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of every option, in both commands and both functions; what is drawn is as promised."""
    try_option(case, capture, tmp_path_factory.mktemp("out"))
