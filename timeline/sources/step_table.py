"""Turns step_trace_*.csv into steps and their parts."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

from timeline.errors import SourceError
from timeline.records.tables import NO_GRAPH, NO_TIME, StepPart, StepParts, Steps
from timeline.sources.microseconds import interval_ns, moment_ns
from timeline.sources.opened import open_text
from timeline.sources.whole_numbers import whole_number

__all__ = ["read_step_table"]

_COLUMNS = ("Iteration ID", "FP Start(us)", "BP End(us)", "Iteration End(us)", "Iteration Time(us)")
_REDUCE_START, _REDUCE_DURATION = "Reduce Start", "Reduce Duration"


def read_step_table(path: Path, device: int | None) -> tuple[Steps, StepParts]:
    """Read one table; with a device, only its rows.

    A step starts at Iteration End less Iteration Time. Rows are ragged: each has as many pairs of
    reduce columns as it had reduces. N/A and 0 in FP Start and BP End mean that there is none.

    Raises:
        SourceError: the file cannot be read or lacks a column.
    """
    steps: dict[str, list[int]] = defaultdict(list)
    parts: dict[str, list[int]] = defaultdict(list)
    try:
        with open_text(path) as file:
            rows = csv.reader(file)
            header = [name.strip() for name in next(rows, [])]
            missing = [name for name in _COLUMNS if name not in header]
            if missing:
                raise SourceError(path, f"has no column {missing[0]}; found {', '.join(header)}.")
            for cells in rows:
                if cells:
                    _add(steps, parts, header, [cell.strip() for cell in cells], device)
    except OSError as error:
        raise SourceError(path, f"cannot be read: {error.strerror}.") from error
    except csv.Error as error:
        raise SourceError(path, f"is not a table: {error}.") from error
    return (
        Steps.of(len(steps["graph"]), steps) if steps else Steps.empty(),
        StepParts.of(len(parts["graph"]), parts) if parts else StepParts.empty(),
    )


def _add(
    steps: dict[str, list[int]],
    parts: dict[str, list[int]],
    header: list[str],
    cells: list[str],
    device: int | None,
) -> None:
    row = dict(zip(header, cells, strict=False))
    if device is not None and row.get("Device_id", str(device)) != str(device):
        return
    end_ns = moment_ns(row.get("Iteration End(us)", "").encode())
    length_ns = moment_ns(row.get("Iteration Time(us)", "").encode())
    iteration = whole_number(row.get("Iteration ID"))
    if end_ns <= 0 or length_ns < 0 or iteration is None or iteration < 0:
        return
    graph = _graph(row.get("Model ID", ""))
    for name, value in (
        ("graph", graph),
        ("iteration", iteration),
        ("start_ns", end_ns - length_ns),
        ("end_ns", end_ns),
        ("fp_start_ns", _mark_ns(row.get("FP Start(us)", ""))),
        ("bp_end_ns", _mark_ns(row.get("BP End(us)", ""))),
    ):
        steps[name].append(value)
    _add_reduces(parts, header, cells, graph, iteration)


def _add_reduces(
    parts: dict[str, list[int]], header: list[str], cells: list[str], graph: int, iteration: int
) -> None:
    first = next((at for at, name in enumerate(header) if name.startswith(_REDUCE_START)), None)
    if first is None:
        return
    pairs = zip(cells[first::2], cells[first + 1 :: 2], strict=False)
    for number, (start, length) in enumerate(pairs):
        start_ns, end_ns = interval_ns([start.encode()], [length.encode()])
        if start_ns[0] > 0:
            for name, value in (
                ("graph", graph),
                ("iteration", iteration),
                ("number", number),
                ("kind", StepPart.REDUCE),
                ("start_ns", int(start_ns[0])),
                ("end_ns", int(end_ns[0])),
            ):
                parts[name].append(value)


def _graph(text: str) -> int:
    number = whole_number(text.removesuffix(".0"))
    return NO_GRAPH if number is None or number < 0 else number


def _mark_ns(text: str) -> int:
    time_ns = moment_ns(text.encode())
    return time_ns if time_ns > 0 else int(NO_TIME)
