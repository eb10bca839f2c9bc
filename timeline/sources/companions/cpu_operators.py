"""Host events from cpu_op_execute_timestamp_R.txt of MindSpore."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from timeline.columns.columns import Float64
from timeline.columns.constant import constant
from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import HostEvents, Omission
from timeline.sources.common.decimals import whole_numbers
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.host_files import CPU_LAYER
from timeline.sources.decoders.text_lines import read_lines

__all__ = ["read_cpu_operators"]

_NS_IN_MS = 1_000_000


def read_cpu_operators(
    path: Path, strings: StringPool, rank: int
) -> tuple[HostEvents, list[Omission]]:
    """Read one line per operator: name;kind;start,length,thread start,length,thread ...

    Starts are ns of the host's steady clock, lengths ms. A length is written from a float32, so
    its end is exact to the digits that are there.

    Raises:
        SourceError: the file cannot be read.
    """
    names: list[str] = []
    calls: list[int] = []
    lines_of: list[int] = []
    cells: list[bytes] = []
    damage = LossLog(path)
    for lines in read_lines(path, damage):
        for at, line in enumerate(lines.numbers.tolist()):
            text = lines.text(at).rstrip()
            if not text.strip():
                continue
            name, *rest = text.rsplit(b";", 2)
            runs = [run.split(b",") for run in rest[-1].split()] if len(rest) == 2 else []
            whole = [run for run in runs if len(run) == 3]
            if lost := len(runs) - len(whole) or int(not runs):
                damage.add("cut or wrong runs", f"line {line}", lost)
            names.append(name.decode("utf-8", "replace").strip())
            calls.append(len(whole))
            lines_of += [line] * len(whole)
            for run in whole:
                cells += run
    start_ns, good = whole_numbers(cells[0::3], int(NO_TIME))
    length_ms = _lengths(cells[1::3])
    thread, _ = whole_numbers(cells[2::3], NO_ID)
    good &= np.isfinite(length_ms) & (length_ms >= 0) & (np.abs(length_ms) < 1e12)
    length_ns = np.rint(np.where(good, length_ms, 0) * _NS_IN_MS).astype(np.int64)
    count = len(start_ns)
    events = HostEvents.of(
        count,
        {
            "start_ns": start_ns,
            "end_ns": start_ns + length_ns,
            "layer": constant(strings.code(CPU_LAYER), count, np.int32),
            "thread": thread,
            "name": np.repeat(strings.codes(names), calls),
        },
    ).take(good)
    damage.add_lines("runs without a valid time", np.array(lines_of, np.int64)[~good])
    return events, list(damage.omissions(rank))


def _lengths(texts: Sequence[bytes]) -> Float64:
    try:
        return np.array(list(map(float, texts)), np.float64)
    except ValueError:
        return np.array([_length(text) for text in texts], np.float64)


def _length(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
