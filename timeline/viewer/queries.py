"""Queries of a timeline in SQL: the whole script, or the definitions that some views need."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Iterable

_DEFINES = re.compile(r"CREATE (?:OR REPLACE PERFETTO|VIRTUAL) (?:TABLE|VIEW|FUNCTION) (\w+)")
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"\w+")


def queries_text() -> str:
    """Return all queries as one script, for the Perfetto UI or a trace processor."""
    file = importlib.resources.files("timeline.viewer") / "queries.sql"
    return file.read_text(encoding="utf-8")


def definitions(names: Iterable[str]) -> str:
    """Return the definitions of views and of all they need, as one line without comments.

    Raises:
        KeyError: there is no such view.
    """
    statements = _statements()
    needed, asked = set[str](), list(names)
    while asked:
        name = asked.pop()
        if name not in needed:
            needed.add(name)
            asked += statements.keys() & set(_WORD.findall(statements[name]))
    return " ".join(f"{statements[name]};" for name in statements if name in needed)


@functools.cache
def _statements() -> dict[str, str]:
    """Return the statements by the name that each defines, in the order of the script."""
    text = " ".join(_COMMENT.sub("", queries_text()).split())
    by_name = dict[str, str]()
    for statement in map(str.strip, text.split(";")):
        defined = _DEFINES.match(statement)
        if defined is not None:
            by_name[defined[1]] = statement
    return by_name
