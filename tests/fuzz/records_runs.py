"""Runs from extreme records on: drawing, fitting and encoding, without a profile on disk.

    python tests/fuzz records [--runs 100000] [--seconds 600] [--processes 2]

A number gives the records, the options and what is checked. Most runs are short, some to a number,
as in `tests/fuzz/drawing_runs.py`; one number of a hundred is exported with all reports, loaded in
the trace processor and checked in all ways.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.drawing_runs import RANKS, DrawingRun, sums_of
from tests.fuzz.findings import Fault, fault_of
from tests.fuzz.ledger import CORPUS, Counts, Ledger
from tests.fuzz.long_runs import Sweeping, in_processes, run_unhindered
from tests.fuzz.oracles import (
    LoadedExport,
    check_directory,
    check_export,
    check_limited,
    check_sums,
    load,
)
from tests.fuzz.promises import BrokenPromise
from tests.support.extreme_records import ExtremeShape, ExtremeSource
from tests.support.other_readings import without_compiled
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.commands.export import export
from timeline.encoders.formats import FORMATS
from timeline.errors import TimelineError
from timeline.options import ReadingOptions
from timeline.profile import Profile
from timeline.progress import Silent
from timeline.ranges import LARGEST_ID
from timeline.reports.export_report import ExportReport
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import Discovered
from timeline.sources.source import ReadRequest

SUFFIXES = tuple(form.suffix for form in FORMATS)
WHOLE_IN = 100
"""Runs of which one goes through the whole program from records on."""
DEEP_IN = 5
"""Whole runs of which one is done again in all ways that must not change anything."""
BLOCK = 250
"""Numbers that a process takes at a time, so that no two have the same."""
MEMORY = Path("/dev/shm")
_EVERYTHING = ReadRequest(DETAIL_LAYERS)


def export_records(
    sources: Sequence[ExtremeSource], target: Path, options: Mapping[str, Any]
) -> ExportReport:
    """Export ranks of made records as a profile that was found.

    Raises:
        TimelineError: they are refused.
    """
    reading = ReadingOptions(jobs=1)
    found = Discovered(tuple(sources), ())
    with Profile(target.parent, found, reading, Silent(), ExitStack()) as profile:
        return export(profile, target, force=True, **options)


class RecordsRun:
    """One run, which its number decides."""

    def __init__(self, number: int, directory: Path) -> None:
        random = Random(number)
        self._directory = directory
        ranks = sorted(set(random.choices(RANKS, k=random.choice((1, 1, 1, 2, 3)))))
        rows = random.choice((0, 1, 2, 8, 8, 40))
        calm = random.choice((0.3, 0.6, 0.8, 0.9, 1.0))
        self.sources = [ExtremeSource(rank, ExtremeShape(number, rows, calm)) for rank in ranks]
        self._suffix = random.choice((*SUFFIXES, ".pftrace", ".pftrace"))
        self._options: dict[str, Any] = {
            "kind": random.choice(("detail", "detail", "summary")),
            "args": random.choice(("all", "all", "default", "none")),
            "group_by": random.choice(("rank", "rank", "layer")),
            "merge_graphs": random.random() < 0.7,
            "scopes": random.random() < 0.2,
            "causes": random.random() < 0.8,
            "limit": 0,
        }
        if self._options["kind"] == "detail" and random.random() < 0.3:
            self._options["layers"] = "all"
        if random.random() < 0.1:
            self._options["window"] = random.choice(("20%:70%", "0ns:1us", "1ns:9000000000s"))
        if random.random() < 0.1:
            self._options["steps"] = random.choice(("1", "0-3", "1-2", str(LARGEST_ID)))
        self._share = random.choice((0, 0, 0.3, 0.6, 0.8, 0.95, 1.0))
        self._events = random.random() < 0.3
        self._fit = random.choice(("coarsen", "coarsen", "steps", "split", "error"))
        self.files = 0
        self.deep = random.randrange(DEEP_IN) == 0
        self.drew = False

    def run(self) -> None:
        """Export the records in full, then within a limit, and check what came.

        Raises:
            TimelineError: they are refused.
            BrokenPromise: what never may be happened.
        """
        whole = self._export("whole", self._options)
        self.drew = any(output.slices for output in whole.outputs)
        loaded = self._loaded(whole)
        if self._draws_all():
            check_sums(loaded.totals, self._sums())
        if self.deep:
            self._again(whole)
        if not self._share or not whole.outputs:
            return
        (output,) = whole.outputs
        options = {**self._options, "fit": self._fit}
        if self._events:
            options["max_events"] = max(1, int(output.elements * self._share))
        else:
            options["limit"] = max(1, int(output.size_bytes * self._share))
        part = self._export("part", options)
        made = self._loaded(part)
        if self._fit == "coarsen" and part.limited_by is not None:
            check_limited(made, loaded)

    def _draws_all(self) -> bool:
        options = self._options
        return options["kind"] == "detail" and not {"window", "steps"} & options.keys()

    def _export(self, name: str, options: Mapping[str, Any]) -> ExportReport:
        self.files += 1
        report = export_records(self.sources, self._directory / f"{name}{self._suffix}", options)
        report.to_json()
        for line in report.lines():
            line.encode()
        return report

    def _loaded(self, report: ExportReport) -> LoadedExport:
        made = load(report)
        check_export(made, selects=bool({"steps", "window"} & self._options.keys()))
        return made

    def _sums(self) -> dict[str, list[int]]:
        """How many valid rows each layer has, and how long they are together."""
        return sums_of([drop_invalid_rows(source.read(_EVERYTHING)) for source in self.sources])

    def _again(self, whole: ExportReport) -> None:
        before = [output.path.read_bytes() for output in whole.outputs]
        again = self._export("whole", self._options)
        if [output.path.read_bytes() for output in again.outputs] != before:
            raise BrokenPromise("the same records are drawn in other bytes")
        with without_compiled():
            plain = self._export("whole", self._options)
        if [output.path.read_bytes() for output in plain.outputs] != before:
            raise BrokenPromise("without what is compiled the bytes are others")


@dataclass(frozen=True)
class RunOutcome:
    """What a run shows: a fault if there is one, what came of it, and how many files it wrote."""

    fault: Fault | None
    files: int = 1
    drew: bool = False
    refused: bool = False
    loaded: bool = False
    deep: bool = False


def outcome_of(number: int, directory: Path, *, whole: bool | None = None) -> RunOutcome:
    """What a run shows; nothing of it is left.

    whole: whether it goes through the whole program; if not given, its number decides.
    """
    fault: Fault | None = None
    run: RecordsRun | DrawingRun | None = None
    refused = False
    whole = number % WHOLE_IN == 0 if whole is None else whole
    try:
        run = RecordsRun(number, directory) if whole else DrawingRun(number, directory)
        run.run()
    except TimelineError:
        refused = True
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is the finding
        found = fault_of(error)
        fault = Fault(re.sub(r"\d+", "#", found.kind)[:600], found.told)
    for path in directory.iterdir():
        if path.suffix == ".part" and fault is None:
            try:
                check_directory(directory)
            except BrokenPromise as error:
                fault = fault_of(error)
        path.unlink()
    if run is None:
        return RunOutcome(fault, refused=refused)
    deep = isinstance(run, RecordsRun) and run.deep
    return RunOutcome(fault, run.files, run.drew, refused, whole, deep)


def main(arguments: Sequence[str]) -> int:
    """Run as many as asked for; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="tests/fuzz records", description="Extreme records.")
    parser.add_argument("--runs", type=int, default=10**9, help="of each process (no limit)")
    parser.add_argument("--seconds", type=float, default=600, help="of all (600)")
    parser.add_argument("--processes", type=int, default=1, help="that run at once (1)")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help=f"of counts ({CORPUS})")
    parser.add_argument("--numbers", type=int, nargs="*", help="run these again, and count nothing")
    options = parser.parse_args(arguments)
    if options.numbers:
        return _run_again(options.numbers)
    return in_processes(_run_some, options, "records", options.processes)


def _run_again(numbers: Sequence[int]) -> int:
    found = 0
    with tempfile.TemporaryDirectory(prefix="tlexport-records-") as name:
        for number in numbers:
            fault = outcome_of(number, Path(name)).fault
            found += fault is not None
            print(f"run {number}: {'holds' if fault is None else fault.told}")
    return int(found > 0)


def _run_some(options: argparse.Namespace, part: int) -> None:
    """Run numbers that nobody had, until the time is over."""
    ledger = Ledger(options.corpus)
    place = MEMORY if MEMORY.is_dir() else None
    sweeping = Sweeping("records", ledger, options.corpus / "records.jsonl", options.seconds)
    with (
        tempfile.TemporaryDirectory(prefix="tlexport-records-", dir=place) as name,
        run_unhindered() as tidy,
    ):
        done = 0
        while done < options.runs and not sweeping.is_over():
            first = ledger.take("records", "next", BLOCK)
            for number in range(first, first + min(BLOCK, options.runs - done)):
                if sweeping.is_over():
                    break
                began = time.monotonic()
                outcome = outcome_of(number, Path(name))
                done += 1
                tidy(done)
                counts = Counts(
                    runs=outcome.files,
                    inputs=1,
                    drew=outcome.drew,
                    refused=outcome.refused,
                    loaded=outcome.loaded,
                    deep=outcome.deep,
                    seconds=time.monotonic() - began,
                )
                sweeping.add(counts, outcome.fault, {"run": number})
    sweeping.end()
