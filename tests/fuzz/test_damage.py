"""Proves that files with any damage are read into sound records or refused."""

from __future__ import annotations

import functools
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.fuzz.promises import check_records, check_valid
from tests.fuzz.small_profiles import EVERY_LAYOUT, SmallProfile
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.errors import TimelineError
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.captures import find_captures
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

ALL = ReadRequest(DETAIL_LAYERS, every_arg=True)
WORDS = (
    *b"0 -1 1e5 1E400 -1e308 NaN Infinity 4294967296 9223372036854775808".split(),
    *b"-9223372036854775809 18446744073709551616 9223372036854775.808 0x10 5. 007 null {}".split(),
    *(b"9" * 400, b"1" * 4400, b"[" * 1200, b'{"a":' * 1200, b"\xff", b"\0", b'"', b",", b"\n"),
    *(text.encode() for text in ("", "N/A", "²", "٣", "--5", "\\ud800", "Plane 99999999999")),
)
"""What readers look for, and what they may stumble over."""


def damaged(content: bytes, random: Random) -> bytes:
    """Damage a file in up to three places: bytes are cut off, left out, repeated or replaced."""
    for _ in range(random.randint(1, 3)):
        first, last = sorted(random.randrange(len(content) + 1) for _ in range(2))
        short = min(last, first + random.choice((1, 4, 64, 4096)))
        content = random.choice(
            (
                content[:first],
                content[:first] + content[short:],
                content[:short] + content[first:],
                content[:first] + random.choice(WORDS) + content[short:],
                content[:first] + random.randbytes(short - first) + content[short:],
            )
        )
    return content


@functools.cache
def small_profile(layout: str, root: Path) -> SmallProfile:
    """Write the profile of a layout once."""
    return SmallProfile(layout, root)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for all profiles."""
    return tmp_path_factory.mktemp("damaged")


@pytest.mark.parametrize("layout", EVERY_LAYOUT)
@given(number=st.integers(0, (1 << 32) - 1))
@settings(max_examples=max(1, settings().max_examples // 4))
@example(number=47)  # some columns of a table can be read further than others
def test_any_damage_is_read_or_refused(layout: str, root: Path, number: int) -> None:
    """The number decides which file is damaged, and how."""
    profile, random = small_profile(layout, root), Random(number)
    path = random.choice(list(profile.files))
    with profile.holding({path: damaged(profile.files[path], random)}):
        try:
            captures = find_captures(profile.capture).captures
            ranks = {str(one.directory): rank for rank, one in enumerate(captures)}
            for source in discover(profile.capture, ranks).sources:
                records = source.read(ALL)
                check_records(records)
                check_valid(drop_invalid_rows(records))
        except TimelineError:
            return
