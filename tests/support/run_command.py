"""A run of the command in a directory of its own, and what it reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simulator.model import RankRun
from tests.support.perfetto_sql import TraceProcessor
from timeline.cli.main import main

OPERATOR_VARIABLES = ("PROFILING_FP_START", "FP_POINT", "PROFILING_BP_END", "BP_POINT")
REPORTED = {"not_overlapped_ns": "exposed_communication_ns"}
"""Names of the report, by those of tables."""
OVERLAP_FIELDS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns")


@dataclass(frozen=True)
class Outcome:
    """What one run of the command returned and said."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """Its stdout as JSON."""
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


@dataclass(frozen=True)
class Command:
    """Runs the command in a directory of its own."""

    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path) -> Outcome:
        """Run the command with these arguments, whatever comes of it."""
        code = main([str(argument) for argument in arguments])
        said = self.capsys.readouterr()
        return Outcome(code, said.out, said.err)

    def report(self, *arguments: str | Path) -> dict[str, Any]:
        """The report of a run that has to succeed; an existing file is replaced."""
        outcome = self(*arguments, "--json", "--force")
        assert outcome.code == 0, outcome.err
        return outcome.report

    def picture(self, *arguments: str | Path) -> TraceProcessor:
        """The Perfetto file of a run that has to succeed."""
        self.report(*arguments, "-o", "picture.pftrace")
        return self.loaded("picture.pftrace")

    def loaded(self, name: str) -> TraceProcessor:
        """A file that was written, loaded without import errors."""
        processor = TraceProcessor.load((self.directory / name).read_bytes())
        assert processor.import_errors() == []
        return processor

    def files(self) -> list[str]:
        """The names of all files in the directory, hidden ones too."""
        return sorted(path.name for path in self.directory.iterdir())


def exported(path: Path, target: Path, *more: str) -> bytes:
    """The timeline that the command makes of a path."""
    arguments = [str(path), "--kind", "detail", "-q", "--force", "-o", str(target), *more]
    assert main(arguments) == 0
    return target.read_bytes()


def hardware_tasks(rank: RankRun) -> int:
    return len(rank.switches) + sum(len(one.tasks) for one in rank.iterations)


def whole_overlap(report: dict[str, Any], rank: int) -> dict[str, int]:
    """The reported overlap of all that was selected of a rank."""
    (row,) = [row for row in report["overlap"] if row["rank"] == rank and row["step"] is None]
    return overlap_of(row)


def overlap_of(row: dict[str, Any]) -> dict[str, int]:
    """Return the parts of a row of the report, under the names of tables."""
    return {field: row[REPORTED.get(field, field)] for field in OVERLAP_FIELDS}
