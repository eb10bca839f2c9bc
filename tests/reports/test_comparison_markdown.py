"""Proves that a comparison in Markdown says what it says elsewhere, as plain GitHub Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.support.html_page import HOSTILE
from tests.support.made_figures import made_report
from timeline.comparison.comparison import Comparison, Gate
from timeline.comparison.sentences import cause_label
from timeline.reports.comparison_report import ComparisonReport, comparison_markdown
from timeline.tables.table import Table

LINKS = "https://example.com www.example.com &lt;b&gt; $x$ $$y$$"
"""What GitHub links by itself, reads as a character, and sets as a formula."""


def report(word: str = "", *, factor: int = 3) -> ComparisonReport:
    """A comparison of figures that nobody measured, in which each tenth operator is longer."""
    base = made_report(2, 6, word=word, names=30).figures
    times = base.operators["total_ns"].copy()
    times[::10] *= factor
    new = base.with_tables(operators=Table({**base.operators.columns, "total_ns": times}))
    gate = Gate.of(0.05, np.array([100] * 9), np.array([120] * 9), (0, 0))
    comparison = Comparison.of(base, new)
    warnings = (f"a warning {word}",)
    return ComparisonReport(
        comparison, Path("before"), Path("after"), (), 0, warnings, (), (), gate=gate
    )


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, whose rows begin and end with a bar."""
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    return [[re.split(r"(?<!\\)\|", line)[1:-1] for line in block] for block in blocks]


@pytest.mark.parametrize("word", ["", HOSTILE, "a|b`c`@you #1 <b>*x*_y_", LINKS])
def test_it_is_markdown_and_nothing_else(word: str) -> None:
    """Each row of a table has as many cells; no name is markup or calls anybody."""
    text = comparison_markdown(report(word))
    found = tables(text)
    assert len(found) >= 2
    for table in found:
        assert {len(row) for row in table} == {5}
        assert set(table[1][1:]) == {"--:"}
    plain = re.sub(r"`[^`\n]*`", "", text)
    assert not re.search(r"(?<!\\)[<>&$]", plain)
    assert not re.search(r"(?<!\\)://", plain)
    assert "www." not in plain
    assert "@" not in plain
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_it_says_what_the_comparison_says() -> None:
    """Its first sentence is the heading; the gate, the whole and what lost most are there."""
    made = report()
    text = comparison_markdown(made)
    heading, *_ = text.splitlines()
    headline, *_ = made.comparison.sentences()
    assert heading.replace("\\", "") == f"### {headline.removesuffix('.')}"
    assert made.gate is not None
    assert f"**{made.gate.sentence()}**" in text
    parts = tables(text)[0][2:]
    assert [row[0].strip().strip("*") for row in parts] == [
        cause_label(str(metric), "") for metric in made.comparison.parts["metric"].tolist()
    ]
    assert "- Note: a warning" in text
    assert len(text.splitlines()) < 60


def test_two_equal_runs_name_nothing() -> None:
    text = comparison_markdown(report(factor=1))
    assert "### Step exactly as long as before" in text
    assert len(tables(text)) == 1
