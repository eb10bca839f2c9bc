"""Printing of text from any source: escaped, so that terminals do not interpret it, and wrapped."""

from __future__ import annotations

import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import TextIO

from timeline.language import said

_BEYOND_ASCII = re.compile(r"[^\x00-\x7e]")
_NO_TEXT = re.compile(r"[\ud800-\udfff]")
_NO_BYTE = re.compile(r"[\ud800-\udc7f\udd00-\udfff]")
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_STOPS = "，。；：、）"
"""Chinese punctuation, behind which a line may end without a blank."""
_WORD = re.compile(rf"[^ {_STOPS}]*[{_STOPS}]* *")
_BLANKS = re.compile(
    r"(?<=\S) +(?=\S)(?!(?<=\d )(?:\d{3}|[num]?s|[KMG]?B)\b)"
    rf"|(?<=[{_STOPS}])(?=[^ {_STOPS}])"
)
"""Runs of blanks, except within a number or between a number and its unit; and where there is none
behind Chinese punctuation."""
_GAPS = re.compile(r"(?<=\S)  +(?=\S)")
"""Runs of several blanks, which separate the columns of a table."""
COLUMNS = 4
"""Number of columns from which a line is taken for the row of a table."""
SHORT_WORD = 10
"""Length up to which the first word is not left alone on a line, as `tlexport:` before a path."""
_COMMAND = re.compile(r"^ *(?:(?:See why|exact|Finding [0-9]+): |[^a-z]*：)?tlexport ")
"""A line with a command that users may copy into a shell."""
_GOES_ON = "" if os.name == "nt" else " \\"
"""The end of a line that makes a shell continue the command on the next one."""


def printable(text: str) -> str:
    """Return text as one line, with control and other invisible characters escaped.

    Names from profiles and file systems may contain escape sequences, line ends, marks that change
    the direction of writing, and bytes that are not text.
    """
    return text if text.isprintable() else "".join(map(_escaped, text))


def _escaped(character: str) -> str:
    if character.isprintable() or unicodedata.category(character) == "Zs":
        return character
    return character.encode("unicode_escape").decode("ascii")


def printable_json(text: str, encoding: str) -> str:
    """Escape in JSON the characters that a terminal interprets or that an encoding lacks.

    JSON itself requires this only for the first 32 characters.
    """
    import json

    def escape(match: re.Match[str]) -> str:
        encodable = match[0].encode(encoding, "ignore")
        return (
            match[0]
            if encodable and printable(match[0]) == match[0]
            else json.dumps(match[0])[1:-1]
        )

    return _BEYOND_ASCII.sub(escape, text).replace("\x7f", "\\u007f")


def encoded(text: str, encoding: str) -> str:
    """Return the text with the characters escaped that the encoding lacks."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def valid_text(text: str) -> str:
    r"""Return text as valid UTF-8; bytes of file names that are not text become \xff."""
    if not _NO_TEXT.search(text):
        return text
    escaped = _NO_BYTE.sub(_escaped_match, text).encode("utf-8", "surrogateescape")
    return escaped.decode("utf-8", "backslashreplace")


def _escaped_match(match: re.Match[str]) -> str:
    return _escaped(match[0])


def command_line(words: Sequence[str]) -> str:
    """Join words to one line that the system's shell splits into the same words."""
    if os.name == "nt":
        from subprocess import list2cmdline

        return list2cmdline(words)
    import shlex

    return shlex.join(words)


def cells_of(text: str) -> int:
    """Return the width of a text on a terminal, where Chinese characters are two cells wide."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def filled(text: str, width: int) -> list[str]:
    """Fill lines of at most `width` cells with a text, without breaking words.

    >>> filled("rank 1 的计算时间长 53%：消除后可缩短 9%。", 24)
    ['rank 1 的计算时间长 53%：', '消除后可缩短 9%。']
    """
    lines = [""]
    for word in _WORD.findall(" ".join(text.split())):
        if lines[-1] and cells_of(lines[-1] + word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
    return [line.rstrip() for line in lines if line]


def wrapped(line: str, width: int) -> list[str]:
    """Split a line at blanks into parts of at most `width` cells, without breaking words.

    A word longer than the width, such as a path, overflows. Rows of tables are split between
    columns if a column fits, and commands so that a shell joins the lines. Escape sequences for
    colours do not count.

    >>> wrapped("Wrote /tmp/o.pftrace  58.3 KB, 8 ranks, steps 1-6", 36)
    ['Wrote /tmp/o.pftrace  58.3 KB, 8', '  ranks, steps 1-6']
    """
    styles = [match.span() for match in _STYLE.finditer(line)]
    shown = _STYLE.sub("", line)
    if cells_of(shown) <= width:
        return [line]
    blanks = [match.span() for match in _BLANKS.finditer(shown) if match.start() > SHORT_WORD]
    columns = [match.span() for match in _GAPS.finditer(shown)]
    gaps = columns if len(columns) >= COLUMNS - 1 else blanks
    goes_on = _GOES_ON if _COMMAND.match(shown) else ""
    indent = " " * (len(shown) - len(shown.lstrip()) + 2)
    indent = "" if 2 * len(indent) > width else indent
    begin, room, parts = 0, width, list[str]()
    while cells_of(shown[begin:]) > room:
        most = room - len(goes_on)
        fitting = [
            [gap for gap in some if begin < gap[0] and cells_of(shown[begin : gap[0]]) <= most]
            for some in (gaps, blanks)
        ]
        ahead = [gap for gap in blanks if gap[0] > begin]
        if not ahead:
            break
        end, next_begin = next((some[-1] for some in fitting if some), ahead[0])
        parts.append(_with_styles(line, styles, begin, end) + goes_on)
        begin, room = next_begin, width - len(indent)
    parts.append(_with_styles(line, styles, begin, len(shown)))
    return [parts[0], *(indent + part for part in parts[1:])]


def _with_styles(line: str, styles: Sequence[tuple[int, int]], begin: int, end: int) -> str:
    """Return the part of a line between two visible positions, with the styles set within."""

    def place(shown: int, *, last: bool) -> int:
        at = shown
        for first, stop in styles:
            if first < at or (first == at and last):
                at += stop - first
        return at

    return line[place(begin, last=False) : place(end, last=True)]


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Print text as it is, with characters escaped that the encoding of the stream lacks.

    stream: standard output by default; nothing is printed if that is closed.
    """
    stream = sys.stdout if stream is None else stream
    if stream is not None:
        stream.write(encoded(text, stream.encoding or "utf-8"))


def say(*lines: str, stream: TextIO | None = None) -> None:
    """Print lines, with invisible characters and those that the stream's encoding lacks escaped.

    Lines are wrapped on a terminal.

    Args:
        stream: standard output by default. Nothing is printed if it is closed, which Python
            represents by None.
    """
    stream = sys.stdout if stream is None else stream
    if stream is None:
        return
    encoding = stream.encoding or "utf-8"
    width = shutil.get_terminal_size().columns if stream.isatty() else 0
    for line in lines:
        shown = encoded(printable(said(line)), encoding)
        for part in wrapped(shown, width) if width else [shown]:
            print(part, file=stream)


def say_remarks(*remarks: str) -> None:
    """Print remarks on standard error, each behind the name of the program."""
    say(*(f"tlexport: {said(remark)}" for remark in remarks), stream=sys.stderr)
