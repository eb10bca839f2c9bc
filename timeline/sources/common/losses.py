"""Counts of rows that are damaged or left out, with the reason and the first place in a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from timeline.columns.columns import Int64
from timeline.errors import SourceError
from timeline.records.tables import Omission, OmissionCode

FFTS_REASON = "FFTS+ tasks that only repeat the span of their sub-tasks"
"""The reason for leaving out parents of FFTS+ sub-tasks."""


def counted_losses(
    rows: Mapping[str, int], rank: int | None, code: OmissionCode, *, loss: bool = True
) -> tuple[Omission, ...]:
    """Return an omission for each reason that has rows."""
    return tuple(
        Omission(reason, count, rank, loss=loss, code=code)
        for reason, count in rows.items()
        if count
    )


def unreadable_file(error: SourceError, rank: int) -> Omission:
    """Return an omission for a companion file of a capture that cannot be read at all."""
    return Omission(str(error).removesuffix("."), 1, rank, loss=True, code=OmissionCode.DAMAGED)


@dataclass
class LossLog:
    """The damaged rows of one file, and warnings about it."""

    path: Path
    remarks: list[str] = field(default_factory=list)
    """Warnings about damage that affects more than single rows."""
    _losses: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Rows and first place by kind of damage."""

    def add(self, what: str, where: str, rows: int = 1) -> None:
        """Count rows that cannot be read; of each kind of damage only the first place is kept.

        Args:
            what: a plural noun and what is wrong with it.
            where: the byte, line or record.
        """
        before, first = self._losses.get(what, (0, where))
        self._losses[what] = (before + rows, first)

    def add_lines(self, what: str, lines: Int64) -> None:
        """Count damaged rows by their line numbers, which ascend; do nothing if there are none."""
        if len(lines):
            self.add(what, f"line {lines[0]}", len(lines))

    @property
    def rows(self) -> int:
        """Number of damaged rows so far."""
        return sum(rows for rows, _ in self._losses.values())

    def warnings(self, rank: int) -> tuple[str, ...]:
        """Return the remarks as warnings that name the rank."""
        return tuple(f"rank {rank}: {remark}" for remark in self.remarks)

    def omissions(self, rank: int) -> tuple[Omission, ...]:
        """Return one omission for each kind of damage."""
        return tuple(
            Omission(
                f"{self.path.name}: {what}, the first at {first}",
                rows,
                rank,
                loss=True,
                code=OmissionCode.DAMAGED,
            )
            for what, (rows, first) in self._losses.items()
        )


@dataclass
class LostRows:
    """Omissions and warnings collected while the files of one rank are read."""

    rank: int
    omissions: list[Omission] = field(default_factory=list, init=False)
    warnings: list[str] = field(default_factory=list, init=False)

    def leave_out(self, reason: str, rows: int, code: OmissionCode, *, loss: bool = True) -> None:
        """Add an omission if any rows are left out."""
        self.omissions += counted_losses({reason: rows}, self.rank, code, loss=loss)

    def warn(self, remark: str) -> None:
        """Add a warning that names the rank."""
        self.warnings.append(f"rank {self.rank}: {remark}")

    @contextmanager
    def reading(self, path: Path, *, warns: bool = False) -> Iterator[LossLog]:
        """Yield a log for damaged rows of a file; count the whole file as lost on a SourceError.

        warns: also warn if the file cannot be read.
        """
        damage = LossLog(path)
        try:
            yield damage
        except SourceError as error:
            self.omissions.append(unreadable_file(error, self.rank))
            if warns:
                self.warn(str(error))
        self.omissions += damage.omissions(self.rank)
