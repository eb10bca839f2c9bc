"""A PyTorch trace of any size: a real one, again and again in time."""

from __future__ import annotations

import gzip
import json
import re
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench.runs import MEGABYTE

_MOVED = re.compile(
    r'("ts":\s*"?)(\d+)|("(?:correlation|[Ee]xternal id|Ev Idx|id)":\s*)(\d+)|(ProfilerStep#)(\d+)'
)
"""Numbers that differ from one repetition to the next: times, ids of events, numbers of steps."""
_NEXT_ID, _NEXT_STEP = 10_000_000, 100
_GAP_US = 1_000_000


def repeat_trace(source: Path, target: Path, megabytes: int) -> None:
    """Write the events of a gzipped trace as often as makes it so large, spelled as they are."""
    text = gzip.decompress(source.read_bytes()).decode()
    first = text.index("[", text.index('"traceEvents"')) + 1
    events, end = _events(text, first)
    header = [spelled for event, spelled in events if event["ph"] == "M"]
    repeated = [spelled for event, spelled in events if event["ph"] != "M"]
    starts_us = [float(event["ts"]) for event, _ in events if event["ph"] == "X"]
    period = int(max(starts_us) - min(starts_us)) + _GAP_US
    once = ",\n".join(repeated)
    with target.open("w", encoding="utf-8") as file:
        file.write(text[:first] + ",\n".join(header))
        for turn in range(max(1, round(megabytes * MEGABYTE / len(once)))):
            by = (turn * period, turn * _NEXT_ID, turn * _NEXT_STEP)
            file.write(",\n" + _MOVED.sub(partial(_moved, by=by), once))
        file.write(text[end:])


def _events(text: str, at: int) -> tuple[list[tuple[dict[str, Any], str]], int]:
    """Each event with its text, and where the last one ends."""
    decoder, between = json.JSONDecoder(), re.compile(r"[\s,]*")
    events: list[tuple[dict[str, Any], str]] = []
    end = at
    while text[at := _end(between, text, end)] != "]":
        event, end = decoder.raw_decode(text, at)
        events.append((event, text[at:end]))
    return events, end


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


def _moved(found: re.Match[str], by: tuple[int, int, int]) -> str:
    kind = (found.lastindex or 0) // 2
    return f"{found[2 * kind - 1]}{int(found[2 * kind]) + by[kind - 1]}"
