"""Counts what could not be read or is left out, with a reason and the first place in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from timeline.columns.columns import Int64
from timeline.errors import SourceError
from timeline.records.tables import Omission, OmissionCode

FFTS_REASON = "FFTS+ tasks that only repeat the span of their sub-tasks"
"""Why a row that stands for several others is not drawn; programs look for its beginning."""


def counted_losses(
    rows: Mapping[str, int], rank: int | None, code: OmissionCode, *, loss: bool = True
) -> tuple[Omission, ...]:
    """Return rows by the reason for which they are left out, of each reason that has any."""
    return tuple(
        Omission(reason, count, rank, loss=loss, code=code)
        for reason, count in rows.items()
        if count
    )


def unreadable_file(error: SourceError, rank: int) -> Omission:
    """Return the omission of a file beside a capture that cannot be read at all."""
    return Omission(str(error).removesuffix("."), 1, rank, loss=True, code=OmissionCode.DAMAGED)


@dataclass
class LossLog:
    """The losses of one pass over a file."""

    path: Path
    remarks: list[str] = field(default_factory=list)
    """What to warn of besides, since it is more than some rows."""
    _found: dict[str, tuple[int, str]] = field(default_factory=dict)

    def add(self, what: str, where: str, rows: int = 1) -> None:
        """Note rows that cannot be read; of each kind only the first place is kept.

        Args:
            what: a plural noun and what is wrong with it.
            where: the byte, line or record.
        """
        before, first = self._found.get(what, (0, where))
        self._found[what] = (before + rows, first)

    def add_lines(self, what: str, lines: Int64) -> None:
        """Note rows by the lines that they are on, in order; no lines mean no damage."""
        if len(lines):
            self.add(what, f"line {lines[0]}", len(lines))

    @property
    def rows(self) -> int:
        """All rows so far."""
        return sum(rows for rows, _ in self._found.values())

    def warnings(self, rank: int) -> tuple[str, ...]:
        """Return the remarks, with the rank."""
        return tuple(f"rank {rank}: {remark}" for remark in self.remarks)

    def omissions(self, rank: int) -> tuple[Omission, ...]:
        """Return one loss for each kind."""
        return tuple(
            Omission(
                f"{self.path.name}: {what}, the first at {first}",
                rows,
                rank,
                loss=True,
                code=OmissionCode.DAMAGED,
            )
            for what, (rows, first) in self._found.items()
        )


@dataclass
class LostRows:
    """The losses of a rank whose files are read one after the other, and remarks on them."""

    rank: int
    omissions: list[Omission] = field(default_factory=list, init=False)
    warnings: list[str] = field(default_factory=list, init=False)

    def leave_out(self, reason: str, rows: int, code: OmissionCode, *, loss: bool = True) -> None:
        """Count rows that are left out, if there are any."""
        self.omissions += counted_losses({reason: rows}, self.rank, code, loss=loss)

    def warn(self, remark: str) -> None:
        """Note a warning of the rank."""
        self.warnings.append(f"rank {self.rank}: {remark}")

    @contextmanager
    def reading(self, path: Path, *, warns: bool = False) -> Iterator[LossLog]:
        """Read a file within this: the log counts damaged rows, a SourceError is all of the file.

        warns: whether a file that cannot be read needs a warning, too.
        """
        damage = LossLog(path)
        try:
            yield damage
        except SourceError as error:
            self.omissions.append(unreadable_file(error, self.rank))
            if warns:
                self.warn(str(error))
        self.omissions += damage.omissions(self.rank)
