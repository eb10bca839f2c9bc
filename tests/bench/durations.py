"""What exports of large profiles take."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

from tests.bench.inputs import Inputs
from tests.bench.runs import MEGABYTE, TLEXPORT, Bench, Row
from tests.support.places import ROOT

DEVICE_LAYERS = "steps,overlap,hardware,communication,counters"


def traces(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """JSON, against what only loads it."""
    path = inputs.trace(ranks=2, megabytes=200)
    (one,) = (path / "rank0_ascend_pt").rglob("trace_view.json")
    size = one.stat().st_size / MEGABYTE
    for kind in ("detail", "summary"):
        command = bench.export(one.parent, "--kind", kind)
        yield bench.measure(f"JSON -> {kind}", command, size, "MB")
    loads = "import orjson, sys; orjson.loads(open(sys.argv[1], 'rb').read())"
    command = [sys.executable, "-c", loads, str(one)]
    yield bench.measure("orjson.loads of that JSON", command, size, "MB")
    imports = (
        "import sys; sys.path.insert(0, sys.argv[2]);"
        "from tests.support.perfetto_sql import TraceProcessor;"
        "TraceProcessor.load(open(sys.argv[1], 'rb').read())"
    )
    command = [sys.executable, "-c", imports, str(one), str(ROOT)]
    yield bench.measure("trace processor's import of that JSON", command, size, "MB")
    for jobs in ("1", "2"):
        command = bench.export(path, "--kind", "detail", "--jobs", jobs)
        yield bench.measure(f"2 ranks of JSON -> detail, --jobs {jobs}", command, 2 * size, "MB")


def databases(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """Databases of growing size."""
    for tasks in (100_000, 1_000_000):
        path = inputs.database(tasks)
        millions, label = tasks / 1e6, f"{tasks:,}".replace(",", " ")
        for name, options in (
            ("detail with CANN calls", ("--kind", "detail")),
            ("detail of the device", ("--kind", "detail", "--layers", DEVICE_LAYERS)),
            ("summary", ("--kind", "summary")),
        ):
            command = bench.export(path, *options)
            work = f"database of {label} tasks -> {name}"
            yield bench.measure(work, command, millions, "M tasks")


def growth(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """Whether time and memory keep to the number of tasks."""
    for tasks in (100_000, 1_000_000, 10_000_000):
        path, label = inputs.database(tasks), f"{tasks:,}".replace(",", " ")
        for kind in ("detail", "summary"):
            command = bench.export(path, "--kind", kind)
            yield bench.measure(f"{label} tasks -> {kind}", command, tasks / 1e6, "M tasks")
        shutil.rmtree(path)


def starts(bench: Bench, inputs: Inputs) -> Iterator[Row]:
    """What must feel immediate, and many ranks."""
    yield bench.measure("--help", [*TLEXPORT, "--help"])
    path = inputs.ranks(64)
    yield bench.measure("--list of 64 ranks", [*TLEXPORT, str(path), "--list"])
    path = inputs.ranks(1_000)
    for jobs in ("1", "2"):
        command = bench.export(path, "--jobs", jobs)
        yield bench.measure(f"1 000 small ranks -> summary, --jobs {jobs}", command, 1000, "ranks")
