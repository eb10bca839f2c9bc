"""Everything that can go wrong in an export, as one tree of exceptions with exit codes.

TimelineError                 exit 1
├── SourceError               a profile cannot be read (file, byte or record)
│   ├── NoProfileError        nothing to read below the given path
│   └── RankIdentityError     a rank id is missing, duplicate or contradictory
├── WorkerError               a rank could not be worked on (process lost, out of memory)
├── RecordError               columns break an invariant (table, row, column)
├── OutputError               the output exists, cannot be written, or has an unknown suffix
├── UsageError                exit 2: an option's value has no meaning
├── SelectionError            exit 3: a rank, graph or step that is not there
└── LimitError                exit 4: the size limit cannot be kept as asked

TimelineWarning               figures are not of all that was asked for, or on no common clock
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "LimitError",
    "NoProfileError",
    "OutputError",
    "RankIdentityError",
    "RecordError",
    "SelectionError",
    "SourceError",
    "TimelineError",
    "TimelineWarning",
    "UsageError",
    "WorkerError",
    "spell_ids",
]


class TimelineError(Exception):
    """Base of all errors that are reported to the user without a traceback."""

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        """Errors travel from the process that reads to the one that reports."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(
    kind: type[TimelineError], args: tuple[object, ...], state: dict[str, object]
) -> TimelineError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class SourceError(TimelineError):
    """A file of a profile cannot be read.

    Carries `path` and, where known, the `offset` in bytes at which reading stopped.
    """

    def __init__(self, path: Path, found: str, *, offset: int | None = None, do: str = "") -> None:
        where = str(path) if offset is None else f"{path}, byte {offset}"
        super().__init__(f"{where}: {found}" + (f" {do}" if do else ""))
        self.path = path
        self.offset = offset


class NoProfileError(SourceError):
    """No readable profile lies at or below a path."""


class RankIdentityError(SourceError):
    """A rank id is missing, appears twice, or is contradicted by another file."""


class WorkerError(TimelineError):
    """The work of a rank was lost with the process that did it."""

    def __init__(self, rank: int, found: str) -> None:
        super().__init__(
            f"rank {rank}: {found} while it was read. Use fewer --jobs, or --keep-going to leave "
            "such ranks out."
        )


class RecordError(TimelineError):
    """Columns of a table break an invariant."""


class OutputError(TimelineError):
    """The output exists, cannot be written, or has a suffix that names no format."""


class UsageError(TimelineError):
    """The value of an option has no meaning."""

    exit_code = 2


class SelectionError(TimelineError):
    """A selected rank, graph, step or window is not in the profile."""

    exit_code = 3


class LimitError(TimelineError):
    """The size limit cannot be kept in the way that was asked for."""

    exit_code = 4


class TimelineWarning(UserWarning):
    """Something must be known about figures that have no report to say it in."""


def spell_ids(ids: Iterable[int], most: int = 12, shortest_run: int = 3) -> str:
    """Spell ids the way they are typed: ascending, runs of `shortest_run` and more as ranges.

    >>> spell_ids([0, 1, 2, 3, 7])
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
