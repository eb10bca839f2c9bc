"""All exceptions of the package, with their exit codes, and functions for messages.

TimelineError                 exit 1
├── SourceError               a profile cannot be read (file, byte or record)
│   ├── NoProfileError        nothing to read below the given path
│   └── RankIdentityError     a rank id is missing, duplicate or contradictory
├── WorkerError               a rank could not be processed (process lost, out of memory)
├── RecordError               columns break an invariant (table, row, column)
├── OutputError               the output exists or cannot be written
├── UsageError                exit 2: an option's value is invalid; an unknown suffix
├── SelectionError            exit 3: a selected rank, graph or step does not exist
├── LimitError                exit 4: the size limit cannot be kept
└── RegressionError           exit 5: steps are longer than --fail-above allows

TimelineWarning               figures are incomplete, or not on a common clock
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable
from pathlib import Path


class TimelineError(Exception):
    """Base of all errors that are reported to the user without a traceback.

    `advice` says what to do; without it, `usual_advice` of the class is used. Messages name options
    of the command, which prints `lines`; functions of the library call `say_in_python`, which
    replaces options by keywords.
    """

    exit_code = 1
    usual_advice = "Report this defect of tlexport, with the layout of the profile."
    advice = ""
    hints: tuple[str, ...] = ()
    """Further lines of advice."""

    def __init__(self, found: str, *, do: str = "", python_do: str = "") -> None:
        super().__init__(f"{found} {do}".rstrip())
        self.advice = do
        self._message = str(self)
        self._in_python = in_python(f"{found} {python_do or do}".rstrip())

    def lines(self) -> list[str]:
        """Return the message for the command, ending with advice, and further lines of advice."""
        message = self._message if self.advice else f"{self._message} {self.usual_advice}"
        return [message, *(f"  {hint}" for hint in self.hints)]

    def offer_others(self) -> None:
        """Add to the message the option that reads the other ranks, unless it names that."""
        if not any("--keep-going" in line for line in self.lines()):
            offer = " To read the other ranks, add --keep-going."
            self._message += offer
            self._in_python += in_python(offer)

    def say_in_python(self) -> None:
        """Change the message for callers of the library: name keywords instead of options."""
        self.args = (self._in_python,)

    def say_names(self, name: Callable[[str], str]) -> None:
        """Apply a function that replaces names to the message and its hints."""
        self.args = tuple(name(part) if isinstance(part, str) else part for part in self.args)
        self._message, self._in_python = name(self._message), name(self._in_python)
        self.hints = tuple(map(name, self.hints))

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling: errors are sent from worker processes to the main process."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(
    kind: type[TimelineError], args: tuple[object, ...], state: dict[str, object]
) -> TimelineError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class SourceError(TimelineError):
    """A file of a profile cannot be read.

    offset: position in bytes at which reading stopped, None if unknown.
    """

    usual_advice = (
        "Check that it can be read and is complete, or leave its rank out with --keep-going."
    )

    def __init__(self, path: Path, found: str, *, offset: int | None = None, do: str = "") -> None:
        where = str(path) if offset is None else f"{path}, byte {offset}"
        super().__init__(f"{where}: {found}", do=do)
        self.path = path
        self.offset = offset

    @classmethod
    def of_system(cls, path: Path, what: str, error: OSError, do: str = "") -> SourceError:
        """Return the error for an OSError; what: the operation that failed on the path.

        Raises:
            MemoryError: the operation failed because memory ran out.
        """
        if error.errno == errno.ENOMEM:
            raise MemoryError from error
        return cls(path, f"{what}: {error.strerror or error}.", do=do)


class NoProfileError(SourceError):
    """There is no readable profile at or below a path."""

    def __init__(
        self, path: Path, found: str, *, do: str = "", hints: tuple[str, ...] = ()
    ) -> None:
        super().__init__(path, found, do=do)
        self.hints = hints


class RankIdentityError(SourceError):
    """A rank id is missing, appears twice, or is contradicted by another file."""

    usual_advice = "Say which it is with --assign-rank DIR=RANK."


class WorkerError(TimelineError):
    """The processing of a rank failed with the process that did it, or for lack of memory."""

    usual_advice = "Use fewer --jobs, or --keep-going to leave such ranks out."

    def __init__(self, rank: int, found: str) -> None:
        super().__init__(f"rank {rank}: {found} while it was read.", do=self.usual_advice)


class RecordError(TimelineError):
    """Columns of a table break an invariant."""


class OutputError(TimelineError):
    """The output exists, or cannot be written."""

    usual_advice = "Name a file that can be written with -o."


class UsageError(TimelineError):
    """The value of an option is invalid, or names something that does not exist."""

    exit_code = 2
    usual_advice = "Try: tlexport --help-all"


class SelectionError(TimelineError):
    """A selected rank, graph, step or window is not in the profile."""

    exit_code = 3
    usual_advice = "Use --list to see what there is."


class LimitError(TimelineError):
    """The size limit cannot be kept in the requested way."""

    exit_code = 4
    usual_advice = "Raise --limit, take fewer --ranks or --steps, or choose another --fit."


class RegressionError(TimelineError):
    """The new run of a comparison is slower than its gate allows; all files are written."""

    exit_code = 5
    usual_advice = "Check the causes that are printed, or raise --fail-above."


SWITCHES = frozenset({"force", "keep_going", "match_shapes", "scopes", "strict"})
"""Keywords of options that take no value."""
_NAMES_IN_PYTHON = {"-o": "output", "--list": "open_profile", "--help-all": "help(timeline)"}
"""Library names of options that are not keywords of the same name."""
_OPTION = re.compile(
    r"\b(?:tlexport|msprof|pip) .*|(?<![\w-])(?:--[a-z][a-z-]*|-o)(?![\w=-])", re.S
)
"""An option in a message; or a whole command line, which is not changed."""


def in_python(message: str) -> str:
    """Return a message with options of the command replaced by keywords of the library.

    >>> in_python("x.json exists. Pass --force to replace it, or -o to name another file.")
    'x.json exists. Pass force=True to replace it, or output to name another file.'
    >>> in_python("found graphs none; leave out --graphs. For all of it: tlexport . --graphs 1")
    'found graphs none; leave out graphs. For all of it: tlexport . --graphs 1'
    """
    return _OPTION.sub(lambda match: _keyword(match[0]), message)


def _keyword(option: str) -> str:
    if not option.startswith("-"):
        return option
    if option in _NAMES_IN_PYTHON:
        return _NAMES_IN_PYTHON[option]
    name = option.removeprefix("--").replace("-", "_")
    if name.startswith("no_"):
        return f"{name.removeprefix('no_')}=False"
    return f"{name}=True" if name in SWITCHES else name


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message, which suggests the most similar known word, if any.

    >>> did_you_mean("--rank", ["--ranks", "--steps"])
    '; did you mean --ranks?'
    """
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else "."


def install_command(*packages: str) -> str:
    """Return the command that installs packages where this Python finds them."""
    import importlib.util
    import shlex
    import sys

    python = shlex.quote(sys.executable)
    has_pip = importlib.util.find_spec("pip") is not None  # uv makes environments without it
    tool = f"{python} -m pip install" if has_pip else f"uv pip install -p {python}"
    return " ".join([tool, *packages])


class TimelineWarning(UserWarning):
    """A warning about figures, for library functions that return no report with notes."""


def format_ids(ids: Iterable[int], most: int = 12, shortest_run: int = 3) -> str:
    """Format ids as they are typed: ascending, with runs of `shortest_run` or more as ranges.

    >>> format_ids([0, 1, 2, 3, 7])
    '0-3,7'
    """
    ordered = sorted(set(ids))
    runs: list[str] = []
    index = 0
    while index < len(ordered):
        last = index
        while last + 1 < len(ordered) and ordered[last + 1] == ordered[last] + 1:
            last += 1
        if last - index + 1 >= shortest_run:
            runs.append(f"{ordered[index]}-{ordered[last]}")
        else:
            runs.extend(str(value) for value in ordered[index : last + 1])
        index = last + 1
    if len(runs) > most:
        runs = [*runs[: most - 1], f"... ({len(ordered)} in all)"]
    return ",".join(runs) if runs else "none"
