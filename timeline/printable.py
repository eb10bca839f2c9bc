"""Text of any origin, escaped so that a terminal shows it and never obeys it."""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

__all__ = ["command_line", "encoded", "printable", "printable_json", "say"]

_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")


def printable(text: str) -> str:
    """One line of text, in which controls and other characters that show nothing are escaped.

    Names come from profiles and file systems: they may hold escape sequences, line ends, marks
    that turn the direction of writing, and bytes that are no text.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable_json(text: str, encoding: str) -> str:
    """JSON in which strings escape what a terminal would obey, and what the encoding lacks.

    JSON itself demands that of the first 32 characters only.
    """
    import json

    def spelled(match: re.Match[str]) -> str:
        known = match[0].encode(encoding, "ignore")
        return match[0] if known and printable(match[0]) == match[0] else json.dumps(match[0])[1:-1]

    return _BEYOND_ASCII.sub(spelled, text).replace("\x7f", "\\u007f")


def encoded(text: str, encoding: str) -> str:
    """The text with all characters escaped that the encoding lacks."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def command_line(words: Sequence[str]) -> str:
    """Words as one line that the shell of this system takes apart into the same words."""
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(words)
    import shlex

    return shlex.join(words)


def say(*lines: str, stream: TextIO | None = None) -> None:
    """Print lines, escaped; characters that the encoding of the stream lacks are escaped too.

    stream: standard output if not given. A closed one is None in Python, and then nobody listens.
    """
    stream = sys.stdout if stream is None else stream
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    for line in lines:
        print(encoded(printable(line), encoding), file=stream)
