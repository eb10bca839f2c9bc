"""Measures what the viewer pays for the elements of a file: slices, samples and arrow ends.

    python tests/bench/viewer_load.py [--elements 1M 2M 5M] [--mixes tasks samples] [--ui]

Timelines are made here, written as any other and loaded by the real trace processor, which is the
WebAssembly build that browsers run, or, with --ui, by the Perfetto UI in Chromium. Each load is a
process of its own. The yardstick is a trace_view.json of 200 MB, made by tools/scaleup.py of the
shared directory; without that, there are no ratios.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.perfetto_sql import TraceProcessor, TraceProcessorError  # noqa: E402
from timeline.columns.columns import Bool, Codes, Int64  # noqa: E402
from timeline.columns.strings import StringPool  # noqa: E402
from timeline.encoders.formats import format_of  # noqa: E402
from timeline.encoders.piece_maker import encode_timeline  # noqa: E402
from timeline.layers import SliceKind  # noqa: E402
from timeline.tracks.model import (  # noqa: E402
    Arg,
    ArgKind,
    Arrows,
    Samples,
    Slices,
    Timeline,
    Track,
    no_arrows,
)

MEGABYTE = 1_000_000
GIGABYTE = 1_000 * MEGABYTE
FIRST_NS = 1_700_000_000_000_000_000
SPAN_NS = 60 * 1_000_000_000
STREAMS = 8
THREADS = 8
COUNTERS = 128
STEP_SLICES = 500
"""Slices of a row after which its names begin again."""
DEPTH = 6
"""How deep calls nest."""
MOST_TIMES = 15
"""How many times the load of the yardstick a file may take."""
MOST_BYTES = 2 * GIGABYTE
"""How large the memory of the trace processor may become."""
_SHORTEST, _LONGEST = 2, 40
"""Microseconds between the beginnings of slices, before they are stretched to the span."""

_Result = TypeVar("_Result")


def _moments(count: int, seed: int) -> Int64:
    """Ascending moments over the whole span, at uneven distances."""
    gaps = np.random.default_rng(seed).integers(_SHORTEST, _LONGEST, count + 1)
    ends = np.cumsum(gaps).astype(np.float64)
    moments: Int64 = FIRST_NS + (ends * (SPAN_NS / ends[-1])).astype(np.int64)
    return moments


def _names(strings: StringPool, stem: str, distinct: int, count: int, seed: int) -> Codes:
    """Codes of names, some far more frequent than others, which are the same in every step."""
    codes = strings.codes(f"{stem}_{number}" for number in range(distinct))
    drawn = np.random.default_rng(seed).zipf(1.3, STEP_SLICES)
    repeated: Codes = np.resize(codes[np.minimum(drawn, distinct) - 1], count)
    return repeated


def _flat(
    count: int, seed: int, kind: SliceKind, args: Callable[[StringPool], tuple[Arg, ...]]
) -> Slices:
    """Slices one behind another."""
    strings, moments = StringPool(), _moments(count, seed)
    names = _names(strings, "MatMulV2/Operator", 100, count, seed)
    end_ns = moments[:-1] + np.diff(moments) * 4 // 5
    return Slices(moments[:-1], end_ns, names, strings, kind, args(strings))


def _no_args(_strings: StringPool) -> tuple[Arg, ...]:
    return ()


def _some(count: int, tenths: int) -> Bool:
    return np.arange(count) % 10 < tenths


def _task_args(count: int, seed: int) -> Callable[[StringPool], tuple[Arg, ...]]:
    """What a task shows unless all or no args are asked for; no two tasks have the same."""

    def args(strings: StringPool) -> tuple[Arg, ...]:
        every = np.ones(count, np.bool_)
        return (
            Arg("task_type", ArgKind.NAME, _names(strings, "AI_CORE", 6, count, seed), every),
            Arg("op_type", ArgKind.NAME, _names(strings, "MatMulV2", 60, count, seed + 1), every),
            Arg(
                "input_shapes",
                ArgKind.NAME,
                _names(strings, "4096,1024;1024,4096", 300, count, seed + 2),
                _some(count, 8),
            ),
            Arg(
                "launched_by",
                ArgKind.NAME,
                _names(strings, "aten::mm", 80, count, seed + 3),
                _some(count, 8),
            ),
            Arg("task_id", ArgKind.INTEGER, np.arange(count), every),
        )

    return args


def _hccl_args(count: int, seed: int) -> Callable[[StringPool], tuple[Arg, ...]]:
    def args(strings: StringPool) -> tuple[Arg, ...]:
        every, drawn = np.ones(count, np.bool_), np.random.default_rng(seed)
        return (
            Arg("src_rank", ArgKind.INTEGER, drawn.integers(0, 8, count), every),
            Arg("dst_rank", ArgKind.INTEGER, drawn.integers(0, 8, count), every),
            Arg("size_bytes", ArgKind.INTEGER, drawn.integers(1, 1 << 20, count), every),
            Arg("bandwidth_gb_s", ArgKind.NUMBER, drawn.uniform(1, 30, count), every),
            Arg("link_type", ArgKind.NAME, _names(strings, "HCCS", 3, count, seed), every),
        )

    return args


def _piece_args(count: int, seed: int) -> Callable[[StringPool], tuple[Arg, ...]]:
    def args(strings: StringPool) -> tuple[Arg, ...]:
        every = np.ones(count, np.bool_)
        return (
            Arg("rank", ArgKind.INTEGER, np.full(count, 3), every),
            Arg("iteration", ArgKind.INTEGER, np.arange(count) // 400, every),
            Arg("share_of_step", ArgKind.NAME, _names(strings, "0.%", 900, count, seed), every),
        )

    return args


def _nested(count: int, seed: int) -> Slices:
    """Calls in stacks, one stack behind another."""
    strings = StringPool()
    moments = _moments(-(-count // DEPTH), seed)
    stack, level = np.divmod(np.arange(count), DEPTH)
    begin, length = moments[:-1][stack], np.diff(moments)[stack] * 9 // 10
    inside = length * level // (3 * DEPTH)
    names = _names(strings, "aten::convolution_backward", 600, count, seed)
    return Slices(
        begin + inside, begin + length - inside, names, strings, SliceKind.HOST_CALL, nested=True
    )


def _samples(count: int, seed: int) -> Samples:
    """A counter that goes up and down."""
    values = np.random.default_rng(seed).integers(-5, 6, count).cumsum()
    return Samples(_moments(count, seed)[:-1], values * 0.25, "MB")


@dataclass(frozen=True)
class Parts:
    """How many slices of each kind, samples and arrows a timeline holds."""

    bare: int = 0
    tasks: int = 0
    hccl: int = 0
    pieces: int = 0
    calls: int = 0
    samples: int = 0
    arrows: int = 0
    """From calls to tasks, or to bare ones where there are no tasks; each has two ends."""

    @property
    def elements(self) -> int:
        slices = self.bare + self.tasks + self.hccl + self.pieces + self.calls
        return slices + self.samples + 2 * self.arrows


def _mix(weights: Parts) -> Callable[[int], Parts]:
    """So many elements, of which each kind has its part."""

    def parts(elements: int) -> Parts:
        each = {kind: part * elements // weights.elements for kind, part in vars(weights).items()}
        return Parts(**each)

    return parts


MIXES: dict[str, Callable[[int], Parts]] = {
    # What 500 000 tasks of a real run, scaled up, with all calls of the host become.
    "detail": _mix(
        Parts(tasks=485, hccl=268, pieces=1088, calls=2872, samples=2718, arrows=537),
    ),
    "bare": _mix(Parts(bare=1)),
    "tasks": _mix(Parts(tasks=1)),
    "calls": _mix(Parts(calls=1)),
    "arrows": _mix(Parts(bare=1, calls=1, arrows=1)),
    "samples": _mix(Parts(samples=1)),
}
"""A whole detail; slices without args, with those of tasks, nested, joined by arrows; samples."""


def _shares(count: int, rows: int) -> Iterator[int]:
    """What each of some rows gets of a number; no rows without any."""
    if not count:
        return iter(())
    bounds = [count * row // rows for row in range(rows + 1)]
    return (stop - first for first, stop in itertools.pairwise(bounds))


def _contents(parts: Parts) -> Iterator[tuple[str, Slices | Samples]]:
    """What each row holds, with its name."""
    for row, count in enumerate(_shares(parts.bare, STREAMS)):
        yield f"Bare {row}", _flat(count, row, SliceKind.TASK, _no_args)
    for row, count in enumerate(_shares(parts.tasks, STREAMS)):
        yield f"Stream {row}", _flat(count, row, SliceKind.TASK, _task_args(count, row))
    for row, count in enumerate(_shares(parts.hccl, STREAMS)):
        yield f"Plane {row}", _flat(count, row, SliceKind.HCCL_TASK, _hccl_args(count, row))
    for row, count in enumerate(_shares(parts.pieces, 3)):
        yield f"Piece {row}", _flat(count, row, SliceKind.OVERLAP, _piece_args(count, row))
    for row, count in enumerate(_shares(parts.calls, THREADS)):
        yield f"Thread {row}", _nested(count, row)
    for row, count in enumerate(_shares(parts.samples, COUNTERS)):
        yield f"Counter {row}", _samples(count, row)


def _joined(contents: Sequence[tuple[str, Slices | Samples]], parts: Parts) -> list[Track]:
    """The tracks, with arrows between calls and what they launch."""
    launched = (SliceKind.TASK,)
    sources = [number for number, (_, one) in enumerate(contents) if _is(one, SliceKind.HOST_CALL)]
    targets = [number for number, (_, one) in enumerate(contents) if _is(one, *launched)]
    tracks = []
    for number, (name, content) in enumerate(contents):
        arrows, side = no_arrows(), sources if number in sources else targets
        if isinstance(content, Slices) and number in (*sources, *targets) and parts.arrows:
            place, per_row = side.index(number), parts.arrows // len(side)
            at = np.sort(np.arange(per_row) * len(content) // per_row)
            arrows = Arrows(at, np.arange(per_row) + place * per_row)
        joined = replace(content, arrows=arrows) if isinstance(content, Slices) else content
        tracks.append(Track(number, None, name, number, content=joined))
    return tracks


def _is(content: Slices | Samples, *kinds: SliceKind) -> bool:
    return isinstance(content, Slices) and content.kind in kinds


def write_mix(mix: str, elements: int, path: Path) -> int:
    """Write a timeline; how many elements it holds."""
    parts = MIXES[mix](elements)
    timeline = Timeline(tuple(_joined(list(_contents(parts)), parts)), FIRST_NS, None)
    with path.open("wb") as file:
        file.writelines(encode_timeline(format_of(path), timeline))
    return parts.elements


@dataclass(frozen=True)
class Load:
    """What it took to load one file: seconds of the processor, or on the clock in the UI.

    heap_bytes: the memory of the trace processor, 0 where the UI holds it. said: what it said
    where it could not.
    """

    seconds: float
    heap_bytes: int
    process_bytes: int
    said: str = ""


def load_file(path: Path) -> Load:
    """Load a file in this process."""
    data = path.read_bytes()
    TraceProcessor()  # compiled once, which is not what is measured
    begin = time.process_time()
    try:
        processor = TraceProcessor.load(data)
    except TraceProcessorError as error:
        return Load(time.process_time() - begin, 0, peak_bytes("self"), str(error)[-300:])
    spent = time.process_time() - begin
    assert path.suffix == ".json" or not processor.import_errors(), processor.import_errors()
    return Load(spent, processor.memory_bytes, peak_bytes("self"))


def open_file(path: Path) -> Load:
    """Open a file in the UI, from dropping it on a fresh page until nothing goes on any more."""
    from tests.support.perfetto_ui import TraceRefusedError, perfetto_ui

    with perfetto_ui() as ui:
        begin, said = time.perf_counter(), ""
        try:
            ui.drop(path, seconds=600)
        except TraceRefusedError as refusal:
            said = str(refusal)
        return Load(time.perf_counter() - begin, 0, max(map(peak_bytes, _renderers())), said)


def _renderers() -> Iterator[str]:
    """The ids of the processes below this one that show pages."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,args="], check=True, capture_output=True, text=True
    )
    rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
    below = {str(os.getpid())}
    for pid, parent, command in sorted(rows, key=lambda row: int(row[0])):
        if parent in below:
            below.add(pid)
            if "--type=renderer" in command:
                yield pid


def peak_bytes(process: str) -> int:
    """The largest resident memory of a process so far.

    Not that of getrusage, which begins with that of the process that started this one.
    """
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def in_own_process(work: Callable[..., _Result], *args: object) -> _Result:
    """Do some work in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(work, *args).result()


@dataclass(frozen=True)
class Row:
    """A file, what its load took, and what the yardstick took meanwhile, if there is one."""

    mix: str
    elements: int
    file_bytes: int
    load: Load
    yardstick_s: float

    @property
    def ratio(self) -> float:
        return self.load.seconds / self.yardstick_s if self.yardstick_s else 0.0

    @property
    def meets(self) -> bool:
        return self.ratio <= MOST_TIMES and self.load.heap_bytes <= MOST_BYTES

    def cells(self) -> tuple[str, ...]:
        memory = [self.load.heap_bytes, self.load.process_bytes]
        if self.load.said:
            last = self.load.said.strip().splitlines()[-1][:60]
        else:
            last = "" if self.meets else "too much"
        return (
            self.mix,
            f"{self.elements / 1e6:.1f}",
            f"{self.file_bytes / MEGABYTE:.1f}",
            f"{self.load.seconds:.1f}",
            *(f"{size / MEGABYTE:,.0f}" if size else "" for size in memory),
            f"{self.ratio:.1f}" if self.yardstick_s else "",
            last,
        )


HEAD = ("mix", "M elements", "file MB", "s", "heap MB", "process MB", "times JSON", "")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows as a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def costs(rows: Sequence[Row]) -> str:
    """What one more element of each mix costs, between the smallest and the largest file."""
    found: dict[str, tuple[float, float]] = {}
    for mix in MIXES:
        loaded = [row for row in rows if row.mix == mix and not row.load.said]
        if len(loaded) > 1:
            first, last = loaded[0], loaded[-1]
            more = last.elements - first.elements
            found[mix] = (
                (last.load.seconds - first.load.seconds) / more,
                (_memory(last) - _memory(first)) / more,
            )
    if {"bare", "calls", "arrows"} <= set(found):
        # Of four elements of that mix one is bare, one is a call and two are ends.
        both = zip(found["arrows"], found["bare"], found["calls"], strict=True)
        seconds, size = ((4 * mixed - bare - call) / 2 for mixed, bare, call in both)
        found["an arrow end alone"] = seconds, size
    cells = [(mix, f"{seconds * 1e6:.2f}", f"{size:.0f}") for mix, (seconds, size) in found.items()]
    return table(("one element more of", "us", "bytes"), cells)


def _memory(row: Row) -> int:
    return row.load.heap_bytes or row.load.process_bytes


def measure(
    mixes: Sequence[str], sizes: Sequence[int], work: Callable[[Path], Load], directory: Path
) -> Iterator[Row]:
    """Load each mix in each size, smallest first, until one cannot be loaded."""
    yardstick = make_yardstick(directory)
    for mix in mixes:
        for elements in sorted(sizes):
            path = directory / f"{mix}.pftrace"
            held = in_own_process(write_mix, mix, elements, path)
            before = in_own_process(work, yardstick).seconds if yardstick else 0.0
            load = in_own_process(work, path)
            after = in_own_process(work, yardstick).seconds if yardstick else 0.0
            row = Row(mix, held, path.stat().st_size, load, (before + after) / 2)
            print("  ".join(row.cells()), file=sys.stderr, flush=True)
            yield row
            path.unlink()
            if row.load.said:
                break


def make_yardstick(directory: Path) -> Path | None:
    """A trace_view.json of 200 MB; None without the means to make one."""
    shared = ROOT.parent / "shared"
    tool = shared / "tools/scaleup.py"
    (source,) = shared.glob("data/torch-npu-text/rank0_ascend_pt/*/trace_view.json") or (None,)
    if not tool.is_file() or source is None:
        return None
    made = directory / "trace_view.json"
    command = [sys.executable, str(tool), "json", "--src", str(source), "--out", str(made)]
    subprocess.run([*command, "--mb", "200"], check=True, stdout=subprocess.DEVNULL)
    return made


def _count(text: str) -> int:
    return int(float(text.removesuffix("M")) * 1e6) if text.endswith("M") else int(text)


def main() -> None:
    """Measure the mixes that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    usual = [1_000_000, 2_000_000, 5_000_000, 8_000_000, 10_000_000]
    parser.add_argument("--elements", nargs="+", type=_count, default=usual, metavar="COUNT")
    parser.add_argument("--mixes", nargs="+", choices=MIXES, default=list(MIXES))
    parser.add_argument("--ui", action="store_true", help="open the files in Chromium")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tlexport-viewer-") as name:
        work = open_file if asked.ui else load_file
        rows = list(measure(asked.mixes, asked.elements, work, Path(name)))
    print(table(HEAD, [row.cells() for row in rows]), costs(rows), sep="\n\n")


if __name__ == "__main__":
    main()
