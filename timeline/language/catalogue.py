"""The catalogue of Chinese texts, and how an English text is found in it.

An entry of `zh.po` holds an English message and its translation. `{}` in a message stands for
anything that the program puts there, and the translation says what that is: `{0}` a number with or
without a unit, `{0:s}` a name, both of which stay as they are, `{0:t}` a text, which has to be in
the catalogue too, `{0:p}` a sentence without its full stop, and `{0:l}` a list of calls, which stay
except for the words between them. What the translation does not mention is a plural's ending.
"""

from __future__ import annotations

import ast
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from string import Formatter

_ENTRY = re.compile(r'^(?:msgctxt "(.*)"\n)?msgid ((?:".*"\n)+)msgstr ((?:".*"\n)+)', re.M)
_WORD = re.compile(r"[A-Za-z]+")
_OPEN = re.compile(r"[A-Za-z]*{}[A-Za-z]*")
"""A placeholder with the parts of words beside it."""
_NUMBER = re.compile(
    r"[-+<]?\d(?:[\d.:%…]|[,-](?=[\d.])|,? (?=\d)|e(?=[+-]?\d)|(?<=e)[+-]|\.\.\. \(\d+ in all\)|"
    r" ?(?:[num]?s|[KMGT]?B|[KMGTP]?FLOP|[GM]Hz)(?:/s)?(?!\w))*(?<![.,: ])"
)
"""A number, a time or a size, or several in a list."""
_BRACKET = re.compile("[()]")
_HAN, _MARK = "\u4e00-\u9fff", "\uff08\uff09\uff0c\u3002\uff1a\uff1b\uff1f\u201c\u201d"
"""Chinese characters and punctuation marks, for a set of them."""
_APART = re.compile(f"[{_HAN}][A-Za-z0-9]|[A-Za-z0-9%][{_HAN}]")
_TOGETHER = re.compile(f"[{_HAN}{_MARK}][{_HAN}{_MARK}]|[{_MARK}].|.[{_MARK}]")
"""Characters that meet where two pieces of a text do: with a blank between them, or without."""
_PLURAL = re.compile(r"e?s?")
TEXT, SENTENCE, CALLS = "t", "p", "l"
"""Kinds of placeholders: a text, one whose full stop is behind it, and a list of calls."""
LEAST_TEXT = 6
"""Number of characters from which entries are tried by their length."""
MOST_TEXTS = 1 << 16
"""Size of the cache of texts."""
MOST_TRIES = 20_000
"""Number of tries to find a text, beyond which it stays English; names may look like sentences."""


class _Tries(threading.local):
    """The number of tries that are left for a text in a thread."""

    left = 0


_TRIES = _Tries()


@dataclass(frozen=True)
class Entry:
    """A message, in a context or none, and its translation; its place in the file."""

    place: int
    context: str
    message: str
    translation: str

    @cached_property
    def literals(self) -> tuple[str, ...]:
        """Return the text around and between the placeholders of the message."""
        return tuple(self.message.split("{}"))

    @cached_property
    def parts(self) -> tuple[tuple[str, int | None, str], ...]:
        """Return the translation: texts, each with the placeholder after it and its kind."""
        return tuple(
            (text, None if place is None else int(place), kind or "")
            for text, place, kind, _ in Formatter().parse(self.translation)
        )

    @cached_property
    def kinds(self) -> dict[int, str]:
        """Return the kinds of the placeholders that the translation mentions."""
        return {place: kind for _, place, kind in self.parts if place is not None}

    @property
    def key(self) -> str:
        """Return the longest word that every such text holds, empty for none."""
        return max(_WORD.findall(_OPEN.sub(" ", self.message)), key=len, default="")

    def order(self) -> tuple[int, int]:
        """Return a sort key: entries with most text come first, short ones as in the file."""
        own = len("".join(self.literals))
        return -own if own >= LEAST_TEXT else 0, self.place

    def captures(self, text: str, at: int = 0) -> Iterator[tuple[str, ...]]:
        """Yield what placeholders may stand for in a text, from that after literal `at` on."""
        literal = self.literals[at]
        _TRIES.left -= 1
        if _TRIES.left < 0 or not text.startswith(literal):
            return
        text = text[len(literal) :]
        if at + 1 == len(self.literals):
            if not text:
                yield ()
            return
        following = self.literals[at + 1]
        if at + 2 == len(self.literals):
            ends = [len(text) - len(following)] if text.endswith(following) else []
        else:
            ends = [found.start() for found in re.finditer(f"(?={re.escape(following)})", text)]
        for end in ends:
            captured = text[: max(end, 0)]
            if end >= 0 and self._fits(at, captured):
                for rest in self.captures(text[end:], at + 1):
                    yield captured, *rest

    def _fits(self, place: int, captured: str) -> bool:
        if place not in self.kinds:
            return _PLURAL.fullmatch(captured) is not None
        if not self.kinds[place]:
            return _NUMBER.fullmatch(captured) is not None
        return _is_whole(captured) and bool(captured or self.kinds[place] == TEXT)

    def filled(self, captured: tuple[str, ...]) -> str | None:
        """Return the translation with what was captured, None if a text of that has none."""
        said = ""
        for text, place, kind in self.parts:
            value: str | None = "" if place is None else captured[place]
            if kind == TEXT and value:
                value = _found(value, "")
            if kind == SENTENCE and value:
                value = _found(f"{value}.", "")
            if kind == CALLS and value:
                value = ", ".join(_found(call, "call") or call for call in _listed(value))
            if value is None:
                return None
            said = _joined(_joined(said, text), value)
        return said


def _joined(left: str, right: str) -> str:
    """Return two pieces of a text: a blank is between Chinese and Latin characters only."""
    if not left or not right:
        return left + right
    if _APART.fullmatch(left[-1] + right[0]):
        return f"{left} {right}"
    before, after = left.rstrip(" "), right.lstrip(" ")
    if before and after and _TOGETHER.fullmatch(before[-1] + after[0]):
        return before + after
    return left + right


def _is_whole(text: str) -> bool:
    """Return whether each bracket of a text is closed in it."""
    depth = 0
    for bracket in _BRACKET.findall(text):
        depth += 1 if bracket == "(" else -1
        if depth < 0:
            return False
    return not depth


def _listed(text: str) -> Iterator[str]:
    """Yield the parts of a list, which commas outside brackets separate."""
    part = ""
    for piece in text.split(", "):
        part = f"{part}, {piece}" if part else piece
        if _is_whole(part):
            yield part
            part = ""
    if part:
        yield part


@lru_cache(1)
def entries() -> tuple[Entry, ...]:
    """Return all entries of the catalogue, in the order of the file."""
    text = (files(__package__) / "zh.po").read_text("utf-8")
    return tuple(
        Entry(place, context, ast.literal_eval(f"({message})"), ast.literal_eval(f"({said})"))
        for place, (context, message, said) in enumerate(_ENTRY.findall(text))
        if message != '""\n'
    )


@lru_cache(1)
def _by_key() -> dict[tuple[str, str], list[Entry]]:
    """Return the entries by context and key."""
    by_key = defaultdict[tuple[str, str], list[Entry]](list)
    for entry in entries():
        by_key[entry.context, entry.key].append(entry)
    return dict(by_key)


def translated(text: str, context: str = "") -> str:
    """Return the translation of a text in a context, the text itself if there is none.

    Blanks around it stay.
    """
    _TRIES.left = MOST_TRIES
    bare = text.strip(" ")
    found = _found(bare, context) if bare else None
    return text if found is None else text.replace(bare, found, 1)


@lru_cache(MOST_TEXTS)
def _found(text: str, context: str) -> str | None:
    """Return the translation of a text; None if it is neither in the catalogue nor a number.

    Whether a message begins with a capital depends on where it stands.
    """
    if _NUMBER.fullmatch(text):
        return text
    forms = text, text[:1].swapcase() + text[1:]
    keys = {"", *(key for form in forms for key in _WORD.findall(form))}
    by_key = _by_key()
    among = [entry for key in keys for entry in by_key.get((context, key), ())]
    for entry in sorted(among, key=Entry.order):
        for captured in (one for form in forms for one in entry.captures(form)):
            if (filled := entry.filled(captured)) is not None:
                return filled
    return None
