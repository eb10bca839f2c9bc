"""Proves that the README says what the command line offers and what readers find, word for word."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from layout_table import ReadLayout, table_lines

from timeline.cli import build_parser

README = Path(__file__).resolve().parents[1] / "README.md"
HELP = "<!-- help -->\n```text\n", "```\n<!-- /help -->"
LAYOUTS = "<!-- layouts -->\n", "<!-- /layouts -->"
WIDTH = "100"


def assert_held(wanted: str, marks: tuple[str, str]) -> None:
    """The README holds a text between two marks; UPDATE_README=1 writes it there."""
    opening, closing = marks
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(opening)
    held, _, after = rest.partition(closing)
    if os.environ.get("UPDATE_README"):
        README.write_text(before + opening + wanted + closing + after, encoding="utf-8")
    else:
        assert held == wanted


def help_text(monkeypatch: pytest.MonkeyPatch) -> str:
    """The help as a terminal of the README's width shows it."""
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("NO_COLOR", "1")
    return build_parser().format_help()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse spells short options otherwise")
def test_the_readme_holds_the_help_of_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_held(help_text(monkeypatch), HELP)


def test_the_readme_says_what_each_layout_holds(layouts: dict[str, ReadLayout]) -> None:
    """A layout that holds more or less of the simulated run than it did changes the table."""
    assert_held("".join(f"{line}\n" for line in table_lines(layouts.values())), LAYOUTS)
