"""Turns the name of a PyTorch trace file into the rank, process and time that it tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

__all__ = ["KinetoName", "host_of", "is_named_json", "is_named_kineto", "read_name"]

_NAMED = re.compile(r"(.+)\.pt\.trace\.json(?:\.gz)?", re.DOTALL)
_JSON = re.compile(r".+\.json(?:\.gz)?", re.DOTALL)
_STAMP = re.compile(r"(.+)\.(\d{13}|\d{19})", re.DOTALL)
_RANK = re.compile(r"(?<![a-z])(?<!local[-_])rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)
_WORKER = re.compile(r"(?!rank|worker|node|gpu|local|trace)([a-z0-9.-]+)_\d{2,}", re.IGNORECASE)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class KinetoName:
    """What a file name tells: `ranks` are all that it names, `taken` is YYYYmmddHHMMSSmmm."""

    ranks: tuple[int, ...]
    worker: str = ""
    taken: str = ""


def is_named_kineto(name: str) -> bool:
    """Whether a file is named as torch.profiler.tensorboard_trace_handler names its files."""
    return _NAMED.fullmatch(name) is not None


def is_named_json(name: str) -> bool:
    """Whether a file may be a trace by its name."""
    return _JSON.fullmatch(name) is not None


def read_name(name: str) -> KinetoName:
    """What the name of a trace tells.

    The handler's names are the worker, a point and the time in ms or, since 2.1, in ns.
    """
    ranks = tuple(dict.fromkeys(int(found) for found in _RANK.findall(name)))
    handled = _NAMED.fullmatch(name)
    stamped = _STAMP.fullmatch(handled[1]) if handled else None
    if stamped is None:
        return KinetoName(ranks)
    return KinetoName(ranks, stamped[1], _taken(int(stamped[2][:13])))


def host_of(worker: str) -> str:
    """The machine of a worker that is named by the handler, as HOST_PID; empty for other names."""
    found = _WORKER.fullmatch(worker)
    return found[1] if found else ""


def _taken(time_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=time_ms)
    return f"{moment:%Y%m%d%H%M%S}{time_ms % 1000:03d}"
