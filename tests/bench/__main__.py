"""Measures how fast tlexport reads large inputs that are made from real profiles.

    python -m tests.bench [PART ...] [--runs 5] [--json table.json]

Parts: traces, databases and starts, which are what is not asked for by name; growth, which
makes a database of 2 GB. Inputs are made by tools/scaleup.py of the shared directory, in a
temporary directory. Every run is a process of its own, so times hold the start of Python, and peaks
are those of that process.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.bench.durations import databases, growth, starts, traces
from tests.bench.inputs import Inputs
from tests.bench.runs import Bench, Row
from tests.support.places import ROOT
from timeline.sources.decoders.json_events import Scanner

_USUAL = ("traces", "databases", "starts")
_PARTS: dict[str, Callable[[Bench, Inputs], Iterator[Row]]] = {
    "traces": traces,
    "databases": databases,
    "starts": starts,
    "growth": growth,
}


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table."""
    head = Row.head()
    lines = [head, tuple("---" for _ in head), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def machine() -> str:
    """Describe where this was measured."""
    with Path("/proc/cpuinfo").open(encoding="utf-8") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    model = models[0] if models else platform.processor()
    compiled = "without" if Scanner is None else "with"
    python = platform.python_version()
    return f"{os.cpu_count()} cores of {model}, Python {python}, {compiled} the compiled parts"


def main() -> None:
    """Measure the parts that are named, or the usual ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", choices=[*_PARTS, []])
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, help="also write the tables here")
    asked = parser.parse_args()
    if not (asked.shared / "tools/scaleup.py").is_file():
        raise SystemExit(f"{asked.shared}: has no tools/scaleup.py to make large inputs with.")
    with tempfile.TemporaryDirectory(prefix="tlexport-bench-") as directory:
        bench, inputs = Bench(asked.runs, Path(directory)), Inputs(asked.shared, Path(directory))
        bench.compile()
        rows = [row for name in asked.parts or _USUAL for row in _PARTS[name](bench, inputs)]
    print(f"{machine()}; medians of {asked.runs} runs\n\n{table(rows)}")
    if asked.json:
        measured = [asdict(row) | {"rate": row.rate} for row in rows]
        asked.json.write_text(json.dumps({"machine": machine(), "rows": measured}, indent=2))


if __name__ == "__main__":
    main()
