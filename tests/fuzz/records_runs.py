"""Runs from extreme records on: facts, drawing, fitting and encoding, without a profile on disk.

    python -m tests.fuzz records [--runs 100000] [--seconds 600] [--first 0]

A run is one number, which gives the records, the options and what is checked.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.findings import Fault, fault_of
from tests.fuzz.oracles import (
    LoadedExport,
    check_directory,
    check_export,
    check_limited,
    check_sums,
    load,
    without_compiled,
)
from tests.fuzz.promises import BrokenPromise, check_trace
from tests.support.extreme_records import ExtremeShape, ExtremeSource
from timeline.analysis.invalid_rows import drop_invalid_rows
from timeline.commands.export import export
from timeline.encoders.formats import FORMATS
from timeline.errors import TimelineError, TimelineWarning
from timeline.options import ReadingOptions
from timeline.profile import Profile
from timeline.progress import Silent
from timeline.ranges import LARGEST_ID
from timeline.reports.export_report import ExportReport
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import Discovered
from timeline.sources.source import ReadRequest

__all__ = ["RecordsRun", "export_records", "main"]

SUFFIXES = tuple(form.suffix for form in FORMATS)
LOADED_IN = 4
"""Runs of which one is loaded in the trace processor and checked in all ways."""
DEEP_IN = 50
TOLD_EVERY = 500
RANKS = (0, 0, 0, 1, (1 << 16) - 1, 1 << 31, 1 << 53, LARGEST_ID)
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
        self.loads = random.randrange(LOADED_IN) == 0
        self._deep = random.randrange(DEEP_IN) == 0
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
        if loaded is not None and self._draws_all():
            check_sums(loaded, self._sums())
        if self._deep:
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
        coarsened = self._fit == "coarsen" and part.limited_by is not None
        if coarsened and made is not None and loaded is not None:
            check_limited(made, loaded)

    def _draws_all(self) -> bool:
        options = self._options
        return options["kind"] == "detail" and not {"window", "steps"} & options.keys()

    def _export(self, name: str, options: Mapping[str, Any]) -> ExportReport:
        report = export_records(self.sources, self._directory / f"{name}{self._suffix}", options)
        report.to_json()
        for line in report.lines():
            line.encode()
        return report

    def _loaded(self, report: ExportReport) -> LoadedExport | None:
        if self.loads:
            made = load(report)
            check_export(made, selects=bool({"steps", "window"} & self._options.keys()))
            return made
        for output in report.outputs:
            if output.path.stat().st_size != output.size_bytes:
                raise BrokenPromise("another size is told than is there")
            if output.path.name.endswith(".pftrace"):
                check_trace(output.path)
            elif output.path.name.endswith(".json"):
                json.loads(output.path.read_bytes())
        return None

    def _sums(self) -> dict[str, list[int]]:
        """How many valid rows each layer has, and how long they are together."""
        wanted: dict[str, list[int]] = {}
        for source in self.sources:
            records = drop_invalid_rows(source.read(_EVERYTHING))
            for layer, table in (
                ("task", records.tasks),
                ("hccl_task", records.planes),
                ("communication_op", records.ops),
            ):
                sums = wanted.setdefault(layer, [0, 0])
                sums[0] += len(table)
                sums[1] += int((table.end_ns - table.start_ns).astype(object).sum() or 0)
        return wanted

    def _again(self, whole: ExportReport) -> None:
        before = [output.path.read_bytes() for output in whole.outputs]
        again = self._export("whole", self._options)
        if [output.path.read_bytes() for output in again.outputs] != before:
            raise BrokenPromise("the same records are drawn in other bytes")
        with without_compiled():
            plain = self._export("whole", self._options)
        if [output.path.read_bytes() for output in plain.outputs] != before:
            raise BrokenPromise("without what is compiled the bytes are others")


def fault_of_run(number: int, directory: Path) -> tuple[Fault | None, RecordsRun | None, bool]:
    """What a run shows, the run, and whether it was refused; nothing of it is left."""
    fault: Fault | None = None
    run, refused = None, False
    try:
        run = RecordsRun(number, directory)
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
    return fault, run, refused


def main(arguments: Sequence[str]) -> int:
    """Run as many as asked for; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="tests/fuzz records", description="Extreme records.")
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--first", type=int, default=0, help="number of the first run (0)")
    options = parser.parse_args(arguments)
    warnings.simplefilter("error")
    warnings.simplefilter("ignore", TimelineWarning)
    kinds: Counter[str] = Counter()
    runs = refusals = drew = loaded = 0
    began = time.monotonic()

    def tell() -> str:
        seconds = time.monotonic() - began
        return (
            f"{runs} runs from records on, {runs / seconds:.1f}/s; {drew} "
            f"({drew / max(runs, 1):.0%}) drew a slice, {refusals} "
            f"({refusals / max(runs, 1):.0%}) were refused in some way, {loaded} were loaded; "
            f"{sum(kinds.values())} faults of {len(kinds)} kinds"
        )

    place = MEMORY if MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tlexport-records-", dir=place) as name:
        for number in range(options.first, options.first + options.runs):
            if time.monotonic() - began > options.seconds:
                break
            fault, run, refused = fault_of_run(number, Path(name))
            runs += 1
            refusals += refused
            if run is not None:
                drew += run.drew
                loaded += run.loads
            if fault is not None:
                if not kinds[fault.kind]:
                    print(f"run {number}: {fault.kind}\n{fault.told}", flush=True)
                kinds[fault.kind] += 1
            if runs % TOLD_EVERY == 0:
                print(tell(), flush=True)
    for kind, count in kinds.most_common():
        print(f"{count} x {kind}")
    print(tell())
    return 1 if kinds else 0
