"""The exceptions of an export as one tree, with their exit codes.

TimelineError                 exit 1
├── SourceError               a profile cannot be read (file, byte or record)
│   ├── NoProfileError        nothing to read below the given path
│   └── RankIdentityError     a rank id is missing, duplicate or contradictory
├── WorkerError               a rank could not be worked on (process lost, out of memory)
├── RecordError               columns break an invariant (table, row, column)
├── OutputError               the output exists or cannot be written
├── UsageError                exit 2: an option's value has no meaning; an unknown suffix
├── SelectionError            exit 3: a rank, graph or step that is not there
├── LimitError                exit 4: the size limit cannot be kept as asked
└── RegressionError           exit 5: steps are longer than --fail-above allows

TimelineWarning               figures are incomplete, or not on a common clock
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path


class TimelineError(Exception):
    """Base of all errors that are reported to the user without a traceback.

    `advice` says what to do; an error raised without any has that of its class. Both are written in
    the words of the command, which prints `lines`. An error that leaves a function of the library
    says the same with keywords (`say_in_python`).
    """

    exit_code = 1
    usual_advice = "Report this defect of tlexport, with the layout of the profile."
    advice = ""
    hints: tuple[str, ...] = ()
    """Further lines of advice."""

    def __init__(self, found: str, *, do: str = "", python_do: str = "") -> None:
        super().__init__(f"{found} {do}".rstrip())
        self.advice = do
        self._said = str(self)
        self._in_python = in_python(f"{found} {python_do or do}".rstrip())

    def lines(self) -> list[str]:
        """Return the message for the command, ending with advice, and further lines of advice."""
        message = self._said if self.advice else f"{self._said} {self.usual_advice}"
        return [message, *(f"  {hint}" for hint in self.hints)]

    def offer_others(self) -> None:
        """Name the option that reads the other ranks, unless the message does."""
        if not any("--keep-going" in line for line in self.lines()):
            said = " To read the other ranks, add --keep-going."
            self._said, self._in_python = self._said + said, self._in_python + in_python(said)

    def say_in_python(self) -> None:
        """Change the message for a caller of a function: keywords instead of options."""
        self.args = (self._in_python,)

    def say_names(self, name: Callable[[str], str]) -> None:
        """Replace names in the message and its hints."""
        self.args = tuple(name(part) if isinstance(part, str) else part for part in self.args)
        self._said, self._in_python = name(self._said), name(self._in_python)
        self.hints = tuple(map(name, self.hints))

    def __reduce__(self) -> tuple[object, ...]:
        """Support pickling: errors travel from the process that reads to the one that reports."""
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

    Carries `path` and, if known, the `offset` in bytes at which reading stopped.
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
        """Make the error of an OSError on a file or directory: what cannot be done, and why."""
        return cls(path, f"{what}: {error.strerror or error}.", do=do)


class NoProfileError(SourceError):
    """No readable profile lies at or below a path."""

    def __init__(
        self, path: Path, found: str, *, do: str = "", hints: tuple[str, ...] = ()
    ) -> None:
        super().__init__(path, found, do=do)
        self.hints = hints


class RankIdentityError(SourceError):
    """A rank id is missing, appears twice, or is contradicted by another file."""

    usual_advice = "Say which it is with --assign-rank DIR=RANK."


class WorkerError(TimelineError):
    """The work of a rank was lost with the process that did it."""

    usual_advice = "Use fewer --jobs, or --keep-going to leave such ranks out."

    def __init__(self, rank: int, found: str) -> None:
        super().__init__(f"rank {rank}: {found} while it was read.", do=self.usual_advice)


class RecordError(TimelineError):
    """Columns of a table break an invariant."""


class OutputError(TimelineError):
    """The output exists, or cannot be written."""

    usual_advice = "Name a file that can be written with -o."


class UsageError(TimelineError):
    """The value of an option has no meaning, or names something that does not exist."""

    exit_code = 2
    usual_advice = "Try: tlexport --help"


class SelectionError(TimelineError):
    """A selected rank, graph, step or window is not in the profile."""

    exit_code = 3
    usual_advice = "Use --list to see what there is."


class LimitError(TimelineError):
    """The size limit cannot be kept in the way that was asked for."""

    exit_code = 4
    usual_advice = "Raise --limit, take fewer --ranks or --steps, or choose another --fit."


class RegressionError(TimelineError):
    """The new run of a comparison is slower than its gate allows; all files are written."""

    exit_code = 5
    usual_advice = "Check the causes that are printed, or raise --fail-above."


SWITCHES = frozenset({"force", "keep_going", "match_shapes", "scopes", "strict"})
"""Options without a value, by their keywords."""
_CALLED = {"-o": "output", "--list": "open_profile", "--help": "help(timeline)"}
"""Names in the library of options that are not keywords of the same name."""
_OPTION = re.compile(
    r"\b(?:tlexport|msprof|pip) .*|(?<![\w-])(?:--[a-z][a-z-]*|-o)(?![\w=-])", re.S
)
"""An option of the command in a message, or a whole command line, which stays as it is typed."""


def in_python(message: str) -> str:
    """Return a message for the command in the words of the library: keywords for options.

    >>> in_python("x.json exists. Pass --force to replace it, or -o to name another file.")
    'x.json exists. Pass force=True to replace it, or output to name another file.'
    >>> in_python("found graphs none; leave out --graphs. For all of it: tlexport . --graphs 1")
    'found graphs none; leave out graphs. For all of it: tlexport . --graphs 1'
    """
    return _OPTION.sub(lambda found: _keyword(found[0]), message)


def _keyword(option: str) -> str:
    if not option.startswith("-"):
        return option
    if option in _CALLED:
        return _CALLED[option]
    name = option.removeprefix("--").replace("-", "_")
    if name.startswith("no_"):
        return f"{name.removeprefix('no_')}=False"
    return f"{name}=True" if name in SWITCHES else name


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return the end of a message, which names the known word nearest in spelling, if any.

    >>> did_you_mean("--rank", ["--ranks", "--steps"])
    '; did you mean --ranks?'
    """
    import difflib

    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else "."


class TimelineWarning(UserWarning):
    """A warning about figures, for callers that get no report with notes."""


def format_ids(ids: Iterable[int], most: int = 12, shortest_run: int = 3) -> str:
    """Format ids the way they are typed: ascending, runs of `shortest_run` and more as ranges.

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
