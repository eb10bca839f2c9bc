"""Questions to a timeline in SQL, and their answers by Perfetto's trace processor."""

from __future__ import annotations

import contextlib
import importlib.resources
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from timeline.encoders.attributes import LANGUAGE, MARK, read_attributes
from timeline.errors import SourceError, UsageError, did_you_mean
from timeline.language import ENGLISH, said, spoken
from timeline.tables.table import Table

_DEFINES = re.compile(r"CREATE (?:OR REPLACE PERFETTO|VIRTUAL) (?:TABLE|VIEW|FUNCTION) (\w+)")
_COMMENTED_VIEW = re.compile(r"((?:^--(?: .*)?\n)+)CREATE OR REPLACE PERFETTO VIEW (\w+)", re.M)
_MARKS = re.compile(r"^--", re.M)
_COMMENT = re.compile(r"--.*")
_WORD = re.compile(r"\w+")
_LITERAL = re.compile(r"'([^'\n]*)'")


class Question(NamedTuple):
    """A question to a timeline: the view that answers it, and the question in words."""

    view: str
    words: str


def queries_text() -> str:
    """Return all queries as one script, for the Perfetto UI or a trace processor.

    They are for timelines in the spoken language.
    """
    file = importlib.resources.files("timeline.viewer") / "queries.sql"
    lines = (line.partition("--") for line in file.read_text(encoding="utf-8").splitlines(True))
    return "".join(f"{said_in_sql(sql)}{mark}{comment}" for sql, mark, comment in lines)


def said_in_sql(sql: str) -> str:
    """Return SQL with the names of rows and slices, and their patterns, in the spoken language."""
    return _LITERAL.sub(lambda literal: f"'{_said_name(literal[1])}'", sql)


def _said_name(name: str) -> str:
    spoken = (said(name, context) for context in ("query", "row", "slice"))
    return next((text.strip() for text in spoken if text != name), name)


def definitions(names: Iterable[str]) -> str:
    """Return the definitions of views and of all that they use, as one line without comments.

    Raises:
        KeyError: a view does not exist.
    """
    statements = _statements()
    needed, unvisited = set[str](), list(names)
    while unvisited:
        name = unvisited.pop()
        if name not in needed:
            needed.add(name)
            unvisited += statements.keys() & set(_WORD.findall(statements[name]))
    return " ".join(f"{statements[name]};" for name in statements if name in needed)


def questions() -> tuple[Question, ...]:
    """Return the questions of the script in its order: its views that have a comment."""
    return tuple(
        Question(name, said(_first_sentence(text)))
        for text, name in _COMMENTED_VIEW.findall(queries_text())
    )


def _first_sentence(comment: str) -> str:
    r"""Return the first sentence of the last paragraph of a comment, without its number.

    >>> _first_sentence("-- Of all.\n--\n-- 2. Which is slow? The slowest first.\n")
    'Which is slow?'
    """
    paragraph = re.split(r"^--\n", comment, flags=re.M)[-1]
    text = " ".join(_MARKS.sub("", paragraph).split())
    return re.split(r"(?<=[.?]) ", re.sub(r"^\d+\. ", "", text))[0]


def _statements() -> dict[str, str]:
    """Return the statements of the script by the name that each defines, in order."""
    text = " ".join(_COMMENT.sub("", queries_text()).split())
    by_name = dict[str, str]()
    for statement in map(str.strip, text.split(";")):
        defined = _DEFINES.match(statement)
        if defined is not None:
            by_name[defined[1]] = statement
    return by_name


# -- answers ---------------------------------------------------------------------------------------


PROCESSOR = "trace_processor_shell"
"""Name of the program that answers queries, where it is on the path."""
VARIABLE = "TLEXPORT_TRACE_PROCESSOR"
"""Environment variable that names that program."""
_POINT = f"Put {PROCESSOR} of Perfetto on the path, or name it in ${VARIABLE}."
_SEE_VIEWS = "Try: tlexport --sql, which shows the tables that it may use."
LOAD_SECONDS = 120
"""Time in which the program has to start."""


def sql_of(question: str) -> str:
    """Return the SQL of a question: a view by its name, or SQL that may use views of the script.

    Raises:
        UsageError: it is one word, and no view or table of the script.
    """
    words = set(_WORD.findall(question))
    if words == {question}:
        if question not in _statements():
            names = [one.view for one in questions()]
            raise UsageError(
                f"there is no question {question!r}{did_you_mean(question, names)}",
                do="Try: tlexport query FILE, which lists all.",
            )
        question = f"SELECT * FROM {question}"
    views = definitions(words & _statements().keys())
    return f"{views} {question}".strip()


def ask(file: Path, question: str) -> Table:
    """Return the rows that answer a question, from a trace processor that loads a timeline.

    file: a timeline. question: see `sql_of`. Bytes in the answer become hexadecimal digits.

    Raises:
        SourceError: the file cannot be read as a trace, or there is no trace processor.
        UsageError: there is no such question, or the SQL is wrong.
    """
    attributes: Mapping[str, str] = {}
    with contextlib.suppress(SourceError):  # SQL may be asked of any trace
        attributes = read_attributes(file)
    with spoken(attributes.get(LANGUAGE, ENGLISH)):
        sql = sql_of(question)
    if question in _statements() and MARK not in (attributes or read_attributes(file)):
        raise SourceError(file, "was not written by tlexport.", do="Ask it in SQL of its tables.")
    from perfetto.common.exceptions import PerfettoException
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    config = TraceProcessorConfig(bin_path=_processor(), load_timeout=LOAD_SECONDS)
    with contextlib.ExitStack() as stack:
        try:
            processor = stack.enter_context(TraceProcessor(trace=str(file), config=config))
        except PerfettoException as error:
            raise SourceError(file, f"cannot be loaded: {_last_line(error)}.") from error
        try:
            result = processor.query(sql)
        except PerfettoException as error:
            raise UsageError(f"the query failed: {_last_line(error)}.", do=_SEE_VIEWS) from error
    width = len(result.column_names)
    columns = {
        name: _column(result.cells[at::width].tolist())
        for at, name in enumerate(result.column_names)
    }
    return Table(columns)


def _processor() -> str:
    """Return the path of the trace processor: the one that is named, on the path, or fetched.

    Raises:
        SourceError: there is none, and it cannot be fetched.
    """
    named = os.environ.get(VARIABLE)
    if named and not Path(named).is_file():
        raise SourceError(Path(named), f"named by ${VARIABLE}, is not a file.", do=_POINT)
    here = named or shutil.which(PROCESSOR)
    if here:
        return here
    from perfetto.prebuilts.manifests.trace_processor_shell import TRACE_PROCESSOR_SHELL_MANIFEST
    from perfetto.prebuilts.perfetto_prebuilts import get_perfetto_prebuilt

    try:
        with contextlib.redirect_stdout(sys.stderr):
            fetched: str | None = get_perfetto_prebuilt(TRACE_PROCESSOR_SHELL_MANIFEST, True)
    except OSError as error:
        raise SourceError.of_system(Path(PROCESSOR), "cannot be fetched", error, _POINT) from error
    except subprocess.CalledProcessError as error:
        raise SourceError(Path(PROCESSOR), "cannot be fetched.", do=_POINT) from error
    if fetched is None:
        raise SourceError(Path(PROCESSOR), "is not built for this machine.", do=_POINT)
    return fetched


def _last_line(error: Exception) -> str:
    """Return the last line of an error's message, without its full stop."""
    return (str(error).strip().splitlines() or ["for no given reason"])[-1].rstrip(".")


def _column(values: list[Any]) -> npt.NDArray[Any]:
    """Return values as a column: of integers, of numbers, or of anything else."""
    given = {type(value) for value in values} - {type(None)}
    if bytes in given:
        values = [value.hex() if isinstance(value, bytes) else value for value in values]
    kind = int if given == {int} else float if given in ({float}, {int, float}) else object
    return Table.of_rows({"": kind}, ([value] for value in values))[""]
