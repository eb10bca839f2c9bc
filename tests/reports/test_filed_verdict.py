"""Proves that a file holds what a pipe was shown, and keeps to a size."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.made_figures import made_report
from timeline.comparison.comparison import Comparison
from timeline.reports.export_report import ExportReport
from timeline.reports.filed_verdict import (
    MOST_BYTES,
    PART_OF_LIMIT,
    TEXT,
    DamagedVerdictError,
    FiledVerdict,
)
from timeline.reports.terminal import PIPE_WIDTH, Display
from timeline.reports.terminal_comparison import comparison_text
from timeline.reports.terminal_verdict import verdict_text

NEXT = "tlexport run --ranks 1 --steps 2 --kind detail"
PIPE = Display(PIPE_WIDTH, "utf-8", terminal=False)


def filed_of(report: ExportReport) -> FiledVerdict:
    return FiledVerdict.of_export("0.1.0", report.kind, report.verdict, report.figures, NEXT)


def read_back(filed: FiledVerdict, most_bytes: int = MOST_BYTES) -> FiledVerdict:
    found = FiledVerdict.from_attributes(dict(filed.attributes(PART_OF_LIMIT * most_bytes)))
    assert found is not None
    return found


def row_counts(filed: FiledVerdict) -> dict[str, int]:
    parts: dict[str, Any] = {"verdict": filed.verdict, "comparison": filed.comparison}
    return {
        f"{part}.{name}": len(rows)
        for part, tables in parts.items()
        for name, rows in (tables or {}).items()
        if isinstance(rows, list) and rows and isinstance(rows[0], dict)
    }


@pytest.mark.parametrize(("ranks", "steps"), [(1, 1), (8, 5), (64, 20)])
def test_lines_are_those_of_a_pipe(ranks: int, steps: int) -> None:
    report = made_report(ranks, steps, word="größe")
    found = read_back(filed_of(report))
    assert not found.left_out
    for lines, verbose in ((found.lines, False), (found.verbose_lines, True)):
        shown = verdict_text(report.verdict, report.figures, PIPE, verbose=verbose)
        assert "".join(f"{line}\n" for line in lines) == shown
    assert found.verdict == report.verdict.to_dict()
    assert found.see_why == NEXT


def test_a_thousand_ranks() -> None:
    """Of very many ranks the middle ones are left out and counted, never lines."""
    filed = filed_of(made_report(1024, 10))
    (_, text), _ = filed.attributes()
    assert MOST_BYTES / 2 < len(text.encode()) <= MOST_BYTES
    found = read_back(filed)
    assert found.left_out["verdict.ranks"] > 0
    assert found.lines == filed.lines


def test_a_comparison_of_more_kinds_than_are_kept() -> None:
    runs = [made_report(512, 12, word=word, names=400).figures for word in ("one", "other")]
    comparison = Comparison.of(runs[0], runs[1])
    found = read_back(FiledVerdict.of_comparison("0.1.0", "summary", comparison))
    assert found.left_out["comparison.operators"] > 0
    assert "".join(f"{line}\n" for line in found.lines) == comparison_text(comparison, PIPE)


@settings(max_examples=at_most(60), deadline=None)
@given(
    ranks=st.integers(1, 40),
    steps=st.integers(1, 12),
    word=st.text(max_size=20),
    most_bytes=st.integers(1, 30_000),
)
def test_any_size_is_kept(ranks: int, steps: int, word: str, most_bytes: int) -> None:
    """Any size is kept, down to the first sentence; each row is there or counted as left out."""
    filed = filed_of(made_report(ranks, steps, word=word, names=4))
    (_, text), (_, checksum) = filed.attributes(PART_OF_LIMIT * most_bytes)
    assert checksum == str(zlib.crc32(text.encode()))
    found = read_back(filed, most_bytes)
    assert found.sentences == filed.sentences[: len(found.sentences)]
    assert found.sentences
    assert found.lines in (filed.lines, found.sentences)
    smallest = len(found.sentences) == 1 and found.verdict is None and not found.see_why
    assert len(text.encode()) <= most_bytes or smallest
    kept = row_counts(found)
    for name, rows in row_counts(filed).items():
        assert kept.get(name, 0) + found.left_out.get(name, 0) == rows, name


def test_changed_text() -> None:
    """One changed character is noticed."""
    attributes = dict(filed_of(made_report(2, 3)).attributes())
    attributes[TEXT] = attributes[TEXT].replace("rank", "tank", 1)
    with pytest.raises(DamagedVerdictError, match="changed"):
        FiledVerdict.from_attributes(attributes)
    assert FiledVerdict.from_attributes({}) is None
