"""Proves that the README says what the command line offers, word for word."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from timeline.cli import build_parser

README = Path(__file__).resolve().parents[1] / "README.md"
OPENING, CLOSING = "<!-- help -->\n```text\n", "```\n<!-- /help -->"
WIDTH = "100"


def help_text(monkeypatch: pytest.MonkeyPatch) -> str:
    """The help as a terminal of the README's width shows it."""
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("NO_COLOR", "1")
    return build_parser().format_help()


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse spells short options otherwise")
def test_the_readme_holds_the_help_of_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run with UPDATE_README=1 to write it there."""
    wanted = help_text(monkeypatch)
    text = README.read_text(encoding="utf-8")
    before, _, rest = text.partition(OPENING)
    held, _, after = rest.partition(CLOSING)
    if os.environ.get("UPDATE_README"):
        README.write_text(before + OPENING + wanted + CLOSING + after, encoding="utf-8")
    else:
        assert held == wanted
