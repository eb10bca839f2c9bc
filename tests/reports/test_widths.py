"""Proves that a terminal of any width breaks no word: not in answers, lists, help or errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profile_shelf import ProfileShelf
from timeline.printable import SHORT_WORD, wrapped

pytestmark = pytest.mark.sweep

pytest.importorskip("pty", reason="a terminal of this system cannot be made here")

COMMANDS = (
    "{one} -o {out}/a.pftrace --force",
    "{one} -o {out}/b.pftrace --force -v --kind detail --limit 30KB",
    "{one} --list",
    "{one} --verdict -v",
    "compare {one} {two} -o {out}/c.pftrace --force",
    "compare {one} {two} -o {out}/d.pftrace --force -v --kind detail --limit 50KB",
    "{one} --ranks 99",
    "{one} --graphs 99",
    "{one} --report x.pdf",
    "{one} --detail",
    "{out}/nothing",
    "--help",
    "compare --help",
    "--help-all",
    "compare --help-all",
    "show --help",
    "query --help",
)
NARROW = COMMANDS[:8]
"""Those that fit where the words of help with their flags do not."""


def broken_words(text: str, width: int) -> list[str]:
    """Words that a terminal of a width breaks, besides paths and what no line could hold."""
    found = []
    for line in text.splitlines():
        for at in range(width, len(line), width):
            word = re.split(r"\s", line[:at])[-1] + re.split(r"\s", line[at:])[0]
            if line[at - 1 : at + 1].strip() == line[at - 1 : at + 1] and len(word) < width:
                found += [] if "/" in word else [word]
    return found


@pytest.mark.parametrize(
    ("width", "commands"), [(40, NARROW), (60, COMMANDS), (80, COMMANDS[:6]), (200, NARROW)]
)
def test_no_word_is_broken(
    shelf: ProfileShelf, tmp_path: Path, width: int, commands: tuple[str, ...]
) -> None:
    """Whatever is asked; each line of an answer is as wide as the terminal, or a long word."""
    from tests.support.terminal_screen import plain, run_on_terminal

    profiles = {"one": shelf.get("torch-text", steps=6).path, "two": shelf.get("torch-db").path}
    for command in commands:
        words = command.format(**profiles, out=tmp_path).split()
        code, shown = run_on_terminal(words, width)
        assert "Traceback" not in shown
        assert code in (0, 1, 2, 3), command
        assert broken_words(plain(shown).rpartition("\r\x1b[K")[2], width) == [], command


WORDS = st.lists(
    st.text("ab1.-/", min_size=1, max_size=30) | st.sampled_from(["25 077", "3.10 ms"]), min_size=1
)


@given(WORDS, st.integers(10, 80), st.booleans())
def test_a_wrapped_line_has_the_words_of_the_line(
    words: list[str], width: int, styled: bool
) -> None:
    """In their order, in lines that fit unless a word does not; colours take no room."""
    line = f"  {' '.join(words)}"
    text = re.sub(r"\S+", "\x1b[1;31m\\g<0>\x1b[0m", line) if styled else line
    parts = [re.sub(r"\x1b\[[0-9;]*m", "", part) for part in wrapped(text, width)]
    assert " ".join(part.strip() for part in parts) == line.strip()
    for part in parts:
        words_in = re.split(r" (?!\d{3}\b|ms\b)", part.strip())
        assert len(part) <= width or len(words_in) == 1 or part.find(words_in[1]) <= SHORT_WORD + 1
    if styled:
        assert "".join(wrapped(text, width)).count("\x1b[1;31m") == text.count("\x1b[1;31m")


def test_what_is_copied_into_a_shell_goes_on_in_the_next_line() -> None:
    """As one command; of a table columns stay whole."""
    line = "See why: tlexport profile --ranks 1,29 --steps 2 --kind detail"
    first, second = wrapped(line, 40)
    assert first.endswith(" \\")
    assert (first.removesuffix("\\") + second.lstrip()) == line
    row = "   8      -  1-20    4422        40  84.834 ms  4.3 MB  wall  /samples/host (trace)"
    assert wrapped(row, 62) == [row[:61].rstrip(), "     /samples/host (trace)"]
    assert wrapped(row, 24)[-2:] == ["     /samples/host", "     (trace)"]
