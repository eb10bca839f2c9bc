"""What tests of ranks in several processes share: runs of the command, damages, made ranks."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.made_source import MadeSource
from tests.support.profile_shelf import Profile
from timeline.analysis.selected_rank import DrawOptions
from timeline.options import ReadingOptions
from timeline.progress import Silent
from timeline.ranks import read_ranks
from timeline.ranks.rank_work import RankRequest, draw_rank_from_source
from timeline.ranks.workers import WorkerPool, worker_pool_for
from timeline.selection import SUMMARY_LAYERS, Selection


@dataclass(frozen=True)
class Outcome:
    """What one run of the command returned, said and left behind, files by name."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]


Command = Callable[..., Outcome]


def contents(directory: Path) -> dict[str, bytes]:
    """All files of a directory, hidden ones too."""
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


FITS = {
    "all": ("--limit", "0"),
    "coarsened": ("--limit", "{0.7}"),
    "leading steps": ("--limit", "{0.87}", "--fit", "steps"),
    "parts": ("--limit", "{0.6}", "--fit", "split"),
    "a window": ("--window", "20%:70%"),
}
"""Options of exports; a number in braces is a part of the size of the whole file."""


def sized(command: Command, path: Path, options: Sequence[str]) -> list[str]:
    """Options with parts of the size of the whole file as bytes."""
    if not any(option.startswith("{") for option in options):
        return list(options)
    size = exact_bytes(command, path)
    return [
        str(int(size * float(option[1:-1]))) if option.startswith("{") else option
        for option in options
    ]


def exact_bytes(command: Command, path: Path, *options: str) -> int:
    """The size of the file with all detail."""
    whole = command(path, "--kind", "detail", "--limit", "0", "-j", "1", *options)
    (content,) = whole.files.values()
    return len(content)


@contextlib.contextmanager
def little_is_held() -> Iterator[None]:
    """Merge ranks as soon as they exceed the limit by far, as if there were millions of slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read_ranks, "LEAST_ELEMENTS_IN_MEMORY", 0)
        yield


def halved(path: Path) -> None:
    """Put zeros over the first half of a file, and cut the rest off, as a full disk does."""
    half = path.stat().st_size // 2
    path.write_bytes(bytes(half))


def garbled(path: Path) -> None:
    """Overwrite the first page of a database's tasks, as a broken disk does."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        ((page_bytes,),) = database.execute("PRAGMA page_size")
        ((page,),) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'TASK'")
    with path.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xa5" * page_bytes)


@dataclass(frozen=True)
class Damage:
    """How a file of each rank is damaged; name is of the file, {0} its rank."""

    layout: str
    name: str
    change: Callable[[Path], None]

    def strike(self, profile: Profile, rank: int) -> Path:
        """Damage the file of a rank."""
        (path,) = profile.captures[rank].rglob(self.name.format(rank))
        self.change(path)
        return path


DAMAGES = {
    "text cut off": Damage("torch-text", "trace_view.json", halved),
    "one of many files cut off": Damage("mindspore-2.1", "msprof_{0}_1_2.json", halved),
    "database cut off": Damage("torch-db", "ascend_pytorch_profiler_{0}.db", halved),
    "database garbled": Damage("torch-db", "ascend_pytorch_profiler_{0}.db", garbled),
}

REQUEST = RankRequest(Selection(layers=SUMMARY_LAYERS), options=DrawOptions(SUMMARY_LAYERS))


def ranks_read(workers: WorkerPool, sources: Sequence[MadeSource]) -> list[int]:
    """The ranks that come back drawn, in that order; each is that of its source."""
    ranks = []
    with workers:
        for source, drawn in workers.results(
            sources, draw_rank_from_source, [REQUEST] * len(sources)
        ):
            assert source.identity.rank == drawn.facts.rank == drawn.tracks.rank
            ranks.append(drawn.facts.rank)
    return ranks


def made_pool(
    sources: Sequence[MadeSource], processes: int, *, keep_going: bool = False
) -> WorkerPool:
    reading = ReadingOptions(jobs=processes, keep_going=keep_going)
    return worker_pool_for(sources, reading, Silent())


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False
