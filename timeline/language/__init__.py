"""The language that people read: which one it is, and texts in it."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import zip_longest
from typing import Any

ENGLISH, CHINESE = "en", "zh"
LANGUAGES = (ENGLISH, CHINESE)
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")
"""Environment variables of the locale, the first one that is set counts."""
_CHARACTER = "\u4e2d"
"""A Chinese character, which each encoding of Chinese has."""
_SPOKEN = ContextVar("spoken", default=ENGLISH)


def spoken_language() -> str:
    """Return the language of what is said now; English unless a `with spoken(...)` is open."""
    return _SPOKEN.get()


@contextmanager
def spoken(language: str) -> Iterator[None]:
    """Say everything in a language within a `with` block."""
    before = _SPOKEN.set(language)
    try:
        yield
    finally:
        _SPOKEN.reset(before)


def asked_language(words: Sequence[str]) -> str:
    """Return the language that words of a command ask for, else that of the environment.

    The last --lang counts. Else it is the first of $LANGUAGE that there is, as in gettext, which
    reads this list except in the locale C; without the list, the language of the locale.
    """
    flag, asked = "--lang", ""
    for word, following in zip_longest(words, words[1:], fillvalue=""):
        value = following if word == flag else word.removeprefix(f"{flag}=")
        if word.startswith(flag) and value in LANGUAGES:
            asked = value
    locale = next(filter(None, map(os.environ.get, _VARIABLES)), "")
    is_plain = locale.partition(".")[0] in ("", "C", "POSIX")
    wanted = (not is_plain and os.environ.get("LANGUAGE")) or locale
    known = (one[:2] for one in wanted.lower().split(":") if one.startswith(LANGUAGES))
    is_chinese = next(known, ENGLISH) == CHINESE and _can_print(_CHARACTER)
    return asked or (CHINESE if is_chinese else ENGLISH)


def _can_print(text: str) -> bool:
    """Return whether the encoding of standard output has all these characters."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def said(text: str, context: str = "", language: str = "") -> str:
    """Return a text of the program in a language, by default the spoken one.

    A text that the catalogue does not hold, such as a name, is returned as it is.

    context: kind of text, if names from profiles may be among those: see `zh.po`.
    """
    if (language or _SPOKEN.get()) == ENGLISH:
        return text
    from timeline.language.catalogue import translated  # only who speaks Chinese needs it

    return translated(text, context)


def said_parts(value: Any, keys: Collection[str], key: str = "") -> Any:
    """Return what JSON is made of, with the texts under some keys in the spoken language."""
    if isinstance(value, dict):
        return {name: said_parts(part, keys, name) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [said_parts(part, keys, key) for part in value]
    return said(value) if key in keys and isinstance(value, str) else value
