"""Proves that progress moves while a large profile is read, measured and written."""

from __future__ import annotations

import itertools
import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.profile_shelf import ProfileShelf
from timeline.progress import RanksRead, Silent
from timeline.ranks.workers import LocalCounts, SharedCounts, count_bytes_read, take_slot
from timeline.sources.decoders.sqlite import open_database
from timeline.sources.files.opened import counting, open_profile_file

pty = pytest.importorskip("pty", reason="a terminal of this system cannot be made here")

STEPS = 120
"""29 MB of text, of which a rank is read in a fraction of a second."""
OFTEN = """
import sys
from timeline import progress
progress.QUIET_SECONDS, progress.UPDATE_SECONDS = 0.0, 0.001
from timeline.cli.main import main
sys.exit(main())
"""
"""Shows more often how far small work is."""
_FRAME = re.compile(rb"\r\x1b\[K([^\r\n]+)")
_BYTES = re.compile(r"Read (\d) of 2 ranks  ([\d.]+) MB of [\d.]+ MB")
_SLICES = re.compile(r"Writing ([\d ]+) of ([\d ]+) slices")


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_progress_never_stands_still(shelf: ProfileShelf, tmp_path: Path, jobs: str) -> None:
    """Bytes within a rank, then slices; no second passes without another line."""
    from tests.support.terminal_screen import watch_on_terminal

    profile = shelf.get("torch-text", steps=STEPS).path
    script = tmp_path / "often.py"
    script.write_text(OFTEN, encoding="utf-8")
    arguments = [str(profile), "--kind", "detail", "--limit", "0", "-j", jobs]
    arguments += ["-o", str(tmp_path / "out.json")]
    code, pieces = watch_on_terminal(arguments, 100, start=[str(script)])
    assert code == 0
    frames = [(when, frame.decode()) for when, piece in pieces for frame in _FRAME.findall(piece)]
    assert all(one != other for (_, one), (_, other) in itertools.pairwise(frames))
    times = [when for when, _ in frames]
    assert max(after - before for before, after in itertools.pairwise(times)) < 1.0
    read = [(match[1], float(match[2])) for _, line in frames if (match := _BYTES.match(line))]
    assert [size for _, size in read] == sorted(size for _, size in read)
    assert len({size for _, size in read}) > 2, "within a rank, of which there are two"
    slices = [match[1] for _, line in frames if (match := _SLICES.match(line))]
    assert len(slices) > 2
    assert slices == sorted(slices, key=lambda count: int(count.replace(" ", "")))


class Told(Silent):
    """Remembers how many bytes were told last, and of how many."""

    last = (0, 0)

    def report(self, stage: str, done: int, total: int) -> None:
        """Remember it."""
        self.last = (done, total)


def test_bytes_of_ranks_in_work_count_once_and_never_go_back() -> None:
    """What is read twice is no more than the rank has, and one begun again is no less."""
    told, counts = Told(), {0: 30, 1: 500, 7: 10}
    read = RanksRead(told, {0: 100, 1: 200, 2: 400}, lambda: counts)
    assert told.last == (230, 700)
    read.note(1)
    assert told.last == (230, 700)
    counts[0] = 5
    read.report()
    assert told.last == (230, 700)
    counts[0] = 99
    read.report()
    assert told.last == (299, 700)


def test_reads_are_counted(shelf: ProfileShelf) -> None:
    """Of files the bytes as they are stored, of a database those of its pages; else nothing is."""
    trace = next(shelf.get("torch-text").path.rglob("trace_view.json"))
    counted: list[int] = []
    with counting(counted.append), open_profile_file(trace) as file:
        while file.read(1000):
            pass
    assert sum(counted) == trace.stat().st_size
    counted.clear()
    with open_profile_file(trace) as file:
        file.read()
    assert not counted
    database = next(shelf.get("torch-db", steps=6).path.rglob("*.db"))
    with counting(counted.append), open_database(database) as opened:
        opened.rows(
            "WITH RECURSIVE n(x) AS (SELECT 1 UNION SELECT x+1 FROM n LIMIT 100000) "
            "SELECT COUNT(*) FROM n, (SELECT * FROM sqlite_master)"
        )
    assert 0 < sum(counted) <= database.stat().st_size


def _read_there(counts: SharedCounts, size_bytes: int) -> None:
    take_slot(counts)
    with count_bytes_read(size_bytes, None):
        from timeline.sources.files.opened import count_read

        count_read(size_bytes)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_count_in_places_of_their_own(method: str) -> None:
    """Whether they begin as copies of this one or anew, as many as there are places or more."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {method} here")
    counts = SharedCounts.of(2)
    assert counts.bytes_of_ranks() == {}
    context: Any = multiprocessing.get_context(method)
    for sizes in ((100_000, 200_000), (300_000,)):
        running = [context.Process(target=_read_there, args=(counts, size)) for size in sizes]
        for one in running:
            one.start()
        for one in running:
            one.join()
            assert one.exitcode == 0
    left = counts.bytes_of_ranks()
    assert len(left) == 2
    assert all(rank == size for rank, size in left.items())
    counts.clear()
    assert counts.bytes_of_ranks() == {}


def test_a_process_that_reads_tells_at_once() -> None:
    """Whoever waits for it has no time to look."""
    counts, told = LocalCounts(), list[int]()
    counts.report = lambda: told.append(counts.bytes_of_ranks()[3])
    with count_bytes_read(3, counts):
        from timeline.sources.files.opened import count_read

        for size_bytes in (1, 100_000, 50_000, 50_000):
            count_read(size_bytes)
    assert told == [100_001, 200_001]
