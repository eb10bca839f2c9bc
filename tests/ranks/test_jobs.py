"""Proves that ranks read by several processes, or on a cluster, make the same files, or an error.

Everything here is real: processes that are killed, files that are truncated, a Dask cluster.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.drawn_slices import DrawnSlice, drawn_slices
from tests.support.made_source import (
    WALL,
    Death,
    Deed,
    Fault,
    Interrupt,
    MadeSource,
    Nap,
    made_sources,
)
from tests.support.perfetto_sql import Row, TraceProcessor
from tests.support.profile_shelf import Profile, ProfileShelf
from tests.support.random_intervals import EPOCH_NS
from tests.support.random_records import Sizes
from tests.support.row_totals import counter_totals, row_totals
from timeline import errors
from timeline.analysis.leading_detail import Leading
from timeline.analysis.selected_rank import DrawOptions
from timeline.cli.main import main
from timeline.encoders.formats import format_of
from timeline.errors import SourceError, TimelineError, WorkerError
from timeline.fitting.fit import fit
from timeline.fitting.writer import FileNotes, Written
from timeline.options import ExportOptions, ReadingOptions
from timeline.process import interrupted_by_signals
from timeline.progress import Silent
from timeline.ranks import processes
from timeline.ranks import read_ranks as reading
from timeline.ranks import workers as jobs
from timeline.ranks.rank_work import RankRequest, draw_rank_from_source
from timeline.ranks.read_ranks import JoinedRanks, draw_again, read_ranks
from timeline.ranks.workers import (
    RANKS_PER_PROCESS,
    WORTH_PROCESSES_BYTES,
    WorkerPool,
    worker_pool_for,
)
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind, Selection
from timeline.sources.source import Clock, Identity, ReadRequest
from timeline.tracks.drawn_rank import DrawnRank

_Result = TypeVar("_Result")
PROC = Path("/proc")
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

# -- the command -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What one run of the command returned, said and left behind, files by name."""

    code: int
    out: str
    err: str
    files: dict[str, bytes]


Command = Callable[..., Outcome]


@pytest.fixture
def command(
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    """Run the command in a new directory."""

    def run(*arguments: object) -> Outcome:
        directory = tmp_path_factory.mktemp("here")
        monkeypatch.chdir(directory)
        code = main([*(str(argument) for argument in arguments), "-o", "timeline.pftrace"])
        said = capsys.readouterr()
        return Outcome(code, said.out, said.err, contents(directory))

    return run


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
"""Options of exports; a share in braces is of the size of the whole file."""


@pytest.mark.parametrize("way", FITS)
@pytest.mark.parametrize("layout", ["torch-db", "mindspore-2.1"])
def test_the_number_of_processes_changes_nothing(
    command: Command, shelf: ProfileShelf, layout: str, way: str
) -> None:
    """One, two and three processes write the same bytes and say the same."""
    path = shelf.get(layout, ranks=3).path
    options = ["--kind", "detail", *sized(command, path, FITS[way]), "--json"]
    numbers = (1, 2, 3) if way == "coarsened" else (1, 3) if way == "all" else (1, 2)
    alone, *together = (command(path, *options, "-j", processes) for processes in numbers)
    assert alone.code == 0
    report = json.loads(alone.out)
    assert any(row["gathered"] for row in report["resolution"]) == (way == "coarsened")
    assert any(row["loss"] for row in report["omitted"]) == (way == "leading steps")
    assert (len(alone.files) > 1) == (way == "parts")
    for outcome in together:
        assert outcome == alone


def sized(command: Command, path: Path, options: Sequence[str]) -> list[str]:
    """Options with shares of the size of the whole file as bytes."""
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
    """Gather ranks as soon as they exceed the limit by far, as if there were millions of slices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "LEAST_ELEMENTS_IN_MEMORY", 0)
        yield


def test_ranks_gathered_while_others_are_read(command: Command, shelf: ProfileShelf) -> None:
    """Where ranks exceed the limit by far, the number of processes changes nothing either."""
    path = shelf.get("torch-db", ranks=3, steps=12).path
    options = ["--kind", "detail", "--layers", "hardware"]
    options += ["--limit", str(exact_bytes(command, path, *options) // 4), "--json"]
    with little_is_held():
        alone, together = (command(path, *options, "-j", processes) for processes in (1, 3))
    assert alone.code == 0
    assert alone == together


# -- ranks that cannot be read -----------------------------------------------------------------


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


@pytest.fixture(params=DAMAGES)
def damage(request: pytest.FixtureRequest) -> Damage:
    return DAMAGES[request.param]


@pytest.fixture(name="processes", params=[1, 2])
def number_of_processes(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


def test_a_rank_that_cannot_be_read_fails_the_export(
    command: Command, shelf: ProfileShelf, tmp_path: Path, damage: Damage, processes: int
) -> None:
    """The message names the file, and nothing is written."""
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    path = damage.strike(profile, 1)
    outcome = command(profile.path, "--kind", "detail", "-j", processes)
    assert (outcome.code, outcome.out, outcome.files) == (1, "", {})
    assert outcome.err.startswith(f"tlexport: {path}")
    assert outcome.err.count("\n") == 1


def test_keep_going_exports_the_other_ranks(
    command: Command, shelf: ProfileShelf, tmp_path: Path, damage: Damage, processes: int
) -> None:
    """The picture is what it is without the rank; the rank and the reason are a warning."""
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    path = damage.strike(profile, 1)
    options = ("--kind", "detail", "--json")
    outcome = command(profile.path, *options, "--keep-going", "-j", processes)
    assert outcome.code == 0, outcome.err
    intact = command(shelf.get(damage.layout, ranks=3).path, *options, "--ranks", "0,2", "-j", "1")
    assert shown(outcome) == shown(intact)
    report = json.loads(outcome.out)
    assert [row["rank"] for row in report["ranks"]] == [0, 2]
    (warning,) = (own for own in report["warnings"] if str(path) in own)
    assert " is left out: " in warning
    assert f"tlexport: {warning}\n" in outcome.err


def shown(outcome: Outcome) -> tuple[list[DrawnSlice], list[Row], list[Row]]:
    """All slices, samples and arrows of the only file; without its notes, which name the rank."""
    (content,) = outcome.files.values()
    processor = TraceProcessor.load(content)
    slices = [one for one in drawn_slices(processor) if one.row[0] != "Notes"]
    samples = "SELECT t.name, c.ts, c.value FROM counter c JOIN track t ON c.track_id = t.id"
    arrows = (
        "SELECT a.name, a.ts, b.name, b.ts FROM flow f"
        " JOIN slice a ON f.slice_out = a.id JOIN slice b ON f.slice_in = b.id"
    )
    return slices, sorted(processor.rows(samples)), sorted(processor.rows(arrows))


@pytest.mark.parametrize("more", [(), ("--steps", "1"), ("--window", "0:50%")], ids=str)
def test_keep_going_without_any_rank_is_an_error(
    command: Command, shelf: ProfileShelf, tmp_path: Path, processes: int, more: Sequence[str]
) -> None:
    """Not one that blames the selection: it tells what is wrong with a rank."""
    damage = DAMAGES["one of many files cut off"]
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    paths = [damage.strike(profile, rank) for rank in range(3)]
    outcome = command(profile.path, "--kind", "detail", "-j", processes, "--keep-going", *more)
    assert (outcome.code, outcome.out, outcome.files) == (1, "", {})
    assert str(paths[0]) in outcome.err


def test_keep_going_with_all_ranks_changes_nothing(command: Command, shelf: ProfileShelf) -> None:
    path = shelf.get("mindspore-2.1", ranks=3).path
    options = ("--kind", "detail", "--json", "-j", 2)
    assert command(path, *options, "--keep-going") == command(path, *options)


# -- ranks that are made for a test ------------------------------------------------------------


REQUEST = RankRequest(Selection(layers=SUMMARY_LAYERS), options=DrawOptions(SUMMARY_LAYERS))


def ranks_read(workers: WorkerPool, sources: Sequence[MadeSource]) -> list[int]:
    """The ranks whose shares come back, in that order; each share is that of its source."""
    ranks = []
    with workers:
        for source, share in workers.results(
            sources, draw_rank_from_source, [REQUEST] * len(sources)
        ):
            assert source.identity.rank == share.facts.rank == share.tracks.rank
            ranks.append(share.facts.rank)
    return ranks


def made_pool(
    sources: Sequence[MadeSource], processes: int, *, keep_going: bool = False
) -> WorkerPool:
    reading = ReadingOptions(jobs=processes, keep_going=keep_going)
    return worker_pool_for(sources, reading, Silent())


@pytest.fixture(scope="module")
def pool() -> Iterator[Executor]:
    """Two processes that several tests share, where nothing happens to them."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        yield pool


# -- who does the work -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "ranks", "size_bytes", "expected"),
    [
        (None, 3, 1000, 1),
        (None, 1, WORTH_PROCESSES_BYTES, 1),
        (None, 3, WORTH_PROCESSES_BYTES, min(3, CORES)),
        (2, 3, 1000, 2),
        (8, 3, 1000, 3),
        (1, 3, WORTH_PROCESSES_BYTES, 1),
    ],
)
def test_processes_are_as_many_as_are_worth_it(
    tmp_path: Path, asked: int | None, ranks: int, size_bytes: int, expected: int
) -> None:
    """What is asked for, but no more than ranks; unasked, one a core if the profile is large."""
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, size_bytes)
    sources = [MadeSource(rank, files=(path, tmp_path / "absent")) for rank in range(ranks)]
    workers = worker_pool_for(sources, ReadingOptions(jobs=asked), Silent())
    assert workers.jobs == expected


@dataclass
class AskedSource:
    """Counts how often a rank is asked for its files, which takes a look into directories."""

    made: MadeSource
    asked: int = 0
    layout: str = "made"

    @property
    def identity(self) -> Identity:
        return self.made.identity

    @property
    def clock(self) -> Clock:
        return self.made.clock

    @property
    def files(self) -> tuple[Path, ...]:
        self.asked += 1
        return self.made.files

    def read(self, wanted: ReadRequest) -> Records:
        """See `Source.read`."""
        return self.made.read(wanted)


def test_files_are_looked_for_once() -> None:
    """Whoever reads ranks, again or not, knows the sizes of their files from the beginning."""
    sources = [AskedSource(source) for source in made_sources(3, {})]
    with worker_pool_for(sources, ReadingOptions(jobs=1), Silent()) as workers:
        for _ in range(2):
            assert len(list(workers.results(sources, draw_rank_from_source, [REQUEST] * 3))) == 3
    assert [source.asked for source in sources] == [1, 1, 1]


# -- lost processes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("culprit", "deeds"),
    [
        (5, {5: Death()}),
        (3, {0: Nap(0.3), 1: Nap(0.3), 2: Nap(0.1), 3: Death()}),
        (0, {0: Death(after_seconds=0.3), 1: Nap(0.1)}),
    ],
    ids=["the last", "behind slow ones", "before quick ones"],
)
def test_a_lost_process_is_blamed_on_its_rank(culprit: int, deeds: dict[int, Deed]) -> None:
    """And on no other rank that was in work at the time."""
    sources = made_sources(6, deeds)
    with pytest.raises(WorkerError, match=rf"^rank {culprit}: .*process died.*--keep-going") as own:
        ranks_read(made_pool(sources, 2), sources)
    assert own.value.exit_code == 1


def test_keep_going_leaves_out_a_rank_whose_process_dies() -> None:
    """All others are there, in their order, also those that were in work beside them."""
    sources = made_sources(6, {1: Nap(0.1), 2: Death(), 3: Nap(0.2)})
    workers = made_pool(sources, 2, keep_going=True)
    assert ranks_read(workers, sources) == [0, 1, 3, 4, 5]
    assert workers.failures.keys() == {2}
    assert re.match(r"rank 2: .*process died", workers.failures[2])


def test_a_process_that_dies_once_costs_nothing(tmp_path: Path) -> None:
    """The rank is read again, and so are those that were lost with it."""
    sources = made_sources(5, {2: Death(marker=tmp_path / "died")})
    workers = made_pool(sources, 2)
    assert ranks_read(workers, sources) == [0, 1, 2, 3, 4]
    assert (tmp_path / "died").exists()
    assert workers.failures == {}


def test_a_rank_without_enough_memory_is_named(processes: int) -> None:
    sources = made_sources(4, {2: Fault(MemoryError())})
    workers = made_pool(sources, processes, keep_going=True)
    assert ranks_read(workers, sources) == [0, 1, 3]
    assert workers.failures.keys() == {2}
    assert re.match(r"rank 2: .*not enough memory", workers.failures[2])


def test_the_first_rank_that_fails_is_the_error(processes: int) -> None:
    """In the order of ranks, whichever fails first in time."""
    sources = made_sources(
        4,
        {
            1: Fault(SourceError(Path("one"), "is broken."), after_seconds=0.2),
            2: Fault(SourceError(Path("two"), "is broken.")),
        },
    )
    with pytest.raises(SourceError, match="one: is broken"):
        ranks_read(made_pool(sources, processes), sources)


def test_keep_going_collects_all_failures(pool: Executor) -> None:
    """By rank, each with its own reason, in the order of ranks."""
    sources = made_sources(
        5,
        {
            1: Fault(SourceError(Path("one"), "is broken."), after_seconds=0.1),
            2: Fault(SourceError(Path("two"), "is broken.")),
            4: Fault(MemoryError()),
        },
    )
    workers = WorkerPool(lambda: pool, 2, Silent(), keep_going=True)
    shares = workers.results(sources, draw_rank_from_source, [REQUEST] * len(sources))
    assert [share.facts.rank for _, share in shares] == [0, 3]
    assert list(workers.failures) == [1, 2, 4]
    assert workers.failures[1] == "one: is broken."
    assert workers.failures[2] == "two: is broken."


def test_an_error_ends_the_work_of_other_ranks() -> None:
    """Nobody waits for a rank that nobody wants any more."""
    sources = made_sources(4, {0: Fault(SourceError(Path("zero"), "is broken.")), 1: Nap(60)})
    before = set(multiprocessing.active_children())
    begin = time.monotonic()
    with pytest.raises(SourceError):
        ranks_read(made_pool(sources, 2), sources)
    assert wait_until(lambda: set(multiprocessing.active_children()) <= before, 10)
    assert time.monotonic() - begin < 30


def test_an_error_spares_processes_of_others() -> None:
    """A program that exports may have processes of its own; they are none of our business."""
    bystander = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    bystander.start()
    try:
        sources = made_sources(2, {0: Fault(SourceError(Path("zero"), "is broken."))})
        with pytest.raises(SourceError):
            ranks_read(made_pool(sources, 2), sources)
        bystander.join(0.5)
        assert bystander.exitcode is None
    finally:
        bystander.kill()
        bystander.join()


def test_a_rank_lost_when_it_is_drawn_again_is_told_like_any_other(
    tmp_path: Path, processes: int
) -> None:
    """--fit steps reads ranks a second time, and that may fail too: an error, or it is left out."""
    fault = Fault(SourceError(Path("one"), "is gone."), marker=tmp_path / "read once")
    sources = made_sources(3, {1: fault})
    with made_pool(sources, processes, keep_going=True) as workers:
        joined = read_ranks(sources, REQUEST, workers, Path("profile"))
        assert [facts.rank for facts in joined.facts] == [0, 1, 2]
        try:
            shares = draw_again(joined, workers, Leading(frozenset({1}), (2,)))
        except TimelineError as error:
            assert "one: is gone." in str(error)
        else:
            assert [share.facts.rank for share in shares] == [0, 2]
            assert workers.failures == {1: "one: is gone."}


SCRIPT = """\
import timeline

timeline.export({path!r}, "timeline.pftrace", jobs=2)
"""


def test_a_script_of_two_lines_can_export(shelf: ProfileShelf, tmp_path: Path) -> None:
    """It needs no `if __name__ == "__main__"`: processes run nothing of the caller's."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(path=str(shelf.get("torch-db", ranks=3).path)))
    here = tmp_path / "here"
    here.mkdir()
    ran = subprocess.run([sys.executable, script], cwd=here, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(contents(here)) == ["timeline.pftrace"]


# -- the order of ranks, and how many are in work ----------------------------------------------


@dataclass
class Counter(Executor):
    """A real executor; knows how many that were submitted are not yet consumed."""

    real: Executor
    submitted: int = 0
    consumed: int = 0
    most: int = 0

    def submit(self, fn: Callable[..., _Result], /, *args: Any, **kwargs: Any) -> Future[_Result]:
        self.submitted += 1
        self.most = max(self.most, self.submitted - self.consumed)
        return self.real.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.real.shutdown(wait, cancel_futures=cancel_futures)


def test_results_come_in_the_order_of_ranks_and_few_are_in_work() -> None:
    """The first ranks finish last, and never more than two for each process are held."""
    deeds: dict[int, Deed] = {0: Nap(0.4), 1: Nap(0.2), 6: Nap(0.3), 9: Nap(0.2)}
    sources = made_sources(12, deeds)
    counter = Counter(ProcessPoolExecutor(2, multiprocessing.get_context("spawn")))
    ranks = []
    with WorkerPool(lambda: counter, 2, Silent()) as workers:
        for source, _ in workers.results(sources, draw_rank_from_source, [REQUEST] * len(sources)):
            ranks.append(source.identity.rank)
            counter.consumed += 1
    assert ranks == list(range(12))
    assert counter.submitted == 12
    assert counter.most == RANKS_PER_PROCESS * 2


# -- Ctrl-C ------------------------------------------------------------------------------------

LARGE_BYTES = 60_000_000


@pytest.fixture(scope="module")
def large(shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two ranks that take seconds to read: the same events again and again."""
    path = tmp_path_factory.mktemp("large") / "run"
    profile = shelf.copy("torch-text", path, ranks=2)
    for capture in profile.captures:
        (trace,) = capture.rglob("trace_view.json")
        events = trace.read_bytes().strip().removeprefix(b"[").removesuffix(b"]")
        with trace.open("wb") as file:
            file.write(b"[" + events)
            for _ in range(LARGE_BYTES // len(events)):
                file.write(b"," + events)
            file.write(b"]")
    yield path
    shutil.rmtree(path)


@dataclass(frozen=True)
class Relative:
    """A process of a session: its parent, its CPU time, and its command line."""

    process: int
    parent: int
    cpu_seconds: float
    command: str


def session_of(leader: int) -> list[Relative]:
    """The processes of a session that still run."""
    found = []
    for directory in PROC.iterdir():
        if directory.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                fields = (directory / "stat").read_text().rpartition(")")[2].split()
                state, parent, session = fields[0], int(fields[1]), int(fields[3])
                ticks = int(fields[11]) + int(fields[12])
                if session == leader and state != "Z":
                    command = (directory / "cmdline").read_text().replace("\0", " ")
                    seconds = ticks / os.sysconf("SC_CLK_TCK")
                    found.append(Relative(int(directory.name), parent, seconds, command))
    return found


def workers_of(leader: int) -> list[Relative]:
    """The processes that read ranks; the one beside them only keeps count of what they share."""
    return [
        own
        for own in session_of(leader)
        if own.parent == leader and "resource_tracker" not in own.command
    ]


def is_starting(leader: int) -> bool:
    """Whether a worker is there, and has done next to nothing."""
    return any(own.cpu_seconds >= 0.02 for own in workers_of(leader))


def is_reading(leader: int) -> bool:
    """Whether two workers are at work."""
    workers = workers_of(leader)
    return len(workers) == 2 and all(own.cpu_seconds >= 0.15 for own in workers)


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


@contextlib.contextmanager
def export_of(profile: Path, here: Path) -> Iterator[subprocess.Popen[str]]:
    """An export by two processes, in a session of its own of which nothing outlives the test."""
    tlexport = Path(sysconfig.get_path("scripts")) / "tlexport"
    process = subprocess.Popen(
        [tlexport, profile, "--kind", "detail", "-j", "2", "-o", here / "timeline.pftrace"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for own in session_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(own.process, signal.SIGKILL)
        process.communicate()


@pytest.mark.skipif(not PROC.is_dir(), reason="processes are found in /proc")
@pytest.mark.parametrize("moment", [is_starting, is_reading], ids=["starting", "reading"])
@pytest.mark.parametrize("send", [os.killpg, os.kill], ids=["to all", "to the parent"])
def test_an_interrupt_leaves_nothing(
    large: Path,
    tmp_path: Path,
    moment: Callable[[int], bool],
    send: Callable[[int, int], None],
) -> None:
    """Exit code 130 and one line at once; no file, not even a temporary one, and no process."""
    with export_of(large, tmp_path) as process:
        assert wait_until(lambda: moment(process.pid), 20)
        send(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=10)
        assert process.returncode == 130
        assert (out, err) == ("", "tlexport: interrupted; nothing was written.\n")
        assert contents(tmp_path) == {}
        assert wait_until(lambda: not session_of(process.pid), 3)


@pytest.mark.skipif(not PROC.is_dir(), reason="processes are found in /proc")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGKILL"])
def test_workers_end_with_their_parent(large: Path, tmp_path: Path, name: str) -> None:
    """However it ends: by `timeout`, with its terminal, or for want of memory."""
    number = signal.Signals[name]
    with export_of(large, tmp_path) as process:
        assert wait_until(lambda: is_reading(process.pid), 20)
        process.send_signal(number)
        _, said = process.communicate(timeout=10)
        ended = number != signal.SIGKILL
        assert process.returncode == (128 + number if ended else -number)
        assert not ended or said == "tlexport: terminated; nothing was written.\n"
        assert contents(tmp_path) == {}
        assert wait_until(lambda: not session_of(process.pid), 3)


def test_a_pool_that_breaks_while_a_process_starts_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pipes that a new process is to get were closed because another one had died."""
    executor = processes.Processes(2)

    def closed(*_: object) -> None:
        vars(executor)["_broken"] = "a process died"
        raise OSError("handle is closed")

    with monkeypatch.context() as patch:
        patch.setattr(ProcessPoolExecutor, "_adjust_process_count", closed)
        patch.setattr(ProcessPoolExecutor, "_start_executor_manager_thread", closed)
        with pytest.raises(BrokenExecutor, match="a process died"):
            executor.submit(sum, (1, 2))
    executor.shutdown()


HALF_MESSAGES = """
import signal, sys, time
from timeline.ranks.processes import Processes


def half_a_result():
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["result_queue"]._writer._send((1 << 20).to_bytes(4, "big"))
    time.sleep(60)


def sleep(_letter):
    time.sleep(60)


def main(direction):
    executor = Processes(1)
    if direction == "result":
        executor.submit(half_a_result)
    else:
        executor.submit(sleep, b"")
        executor.submit(sleep, bytes(8 << 20))
        executor.submit(sleep, bytes(8 << 20))
    time.sleep(1)
    executor.shutdown(wait=False, cancel_futures=True)
"""
"""Ends with half a message in a pipe: to this process, or to one that takes no more work."""


@pytest.mark.skipif(os.name != "posix", reason="processes are copied as on POSIX")
@pytest.mark.parametrize("direction", ["result", "work"])
def test_half_a_message_holds_nobody_up(direction: str, tmp_path: Path) -> None:
    """A worker may be stopped in the midst of what it sends, and before it takes what it is sent.

    The interpreter joins the threads that read and write such messages when it ends.
    """
    (tmp_path / "half_messages.py").write_text(HALF_MESSAGES, encoding="utf-8")
    command = [sys.executable, "-c", f"import half_messages; half_messages.main('{direction}')"]
    begun = time.monotonic()
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    assert time.monotonic() - begun < 10


@pytest.mark.skipif(not PROC.is_dir(), reason="threads are counted in /proc")
@pytest.mark.parametrize(("threads", "method"), [(0, "fork"), (1, "spawn")])
def test_only_a_process_of_one_thread_is_copied(threads: int, method: str) -> None:
    """Another thread may hold a lock that nobody would open in the copy."""
    script = f"""
import threading
from timeline.ranks.processes import Processes
from timeline.process import tune_for_one_command
tune_for_one_command()
import numpy
stop = threading.Event()
for _ in range({threads}):
    threading.Thread(target=stop.wait).start()
with Processes(2) as executor:
    print(executor.submit(sum, (1, 2)).result(), executor._mp_context.get_start_method())
stop.set()
"""
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["3", method]


@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent as on POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_process_that_starts_others_is_interrupted_later(number: signal.Signals) -> None:
    """What starts is told all of what to do, though a thread beside lets the signal through."""
    done = threading.Event()
    beside = threading.Thread(target=done.wait)
    beside.start()
    reached = False
    try:
        with interrupted_by_signals(), pytest.raises(KeyboardInterrupt):
            with processes.starting_processes():
                os.kill(os.getpid(), number)
                time.sleep(0.05)
                reached = True
            time.sleep(5)
    finally:
        done.set()
        beside.join()
    assert reached


@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent as on POSIX")
def test_one_process_is_interrupted_while_it_reads() -> None:
    """A large rank is not read to its end first."""
    sources = made_sources(1, {0: Interrupt()})
    with pytest.raises(KeyboardInterrupt):
        ranks_read(made_pool(sources, 1), sources)


# -- gathering in stages -----------------------------------------------------------------------

BOOTS_NS = (EPOCH_NS - 7_000_000_011, EPOCH_NS - 123_456_789_012_345)
"""When two hosts were started, to which their clocks count."""


def hosted(rank: int) -> Clock:
    """The clock of one of two hosts."""
    host = rank % len(BOOTS_NS)
    return Clock(f"host{host}", BOOTS_NS[host])


def joined_ranks(
    sources: Sequence[MadeSource], limit_bytes: int, target: Path, workers: WorkerPool | None = None
) -> JoinedRanks:
    """Read made ranks, in this process unless by a workers; limit 0 gathers nothing."""
    request = RankRequest(
        Selection(layers=DETAIL_LAYERS),
        options=DrawOptions(DETAIL_LAYERS),
        limit_bytes=limit_bytes,
        ranks=len(sources),
        target=target,
    )
    with little_is_held():
        return read_ranks(sources, request, workers or made_pool(sources, 1), Path("profile"))


def never_again(_leading: Leading) -> Sequence[DrawnRank]:
    raise AssertionError("only --fit steps draws again")


def fitted(joined: JoinedRanks, limit_bytes: int, target: Path, *, by_layer: bool) -> Written:
    """Write shares to a file within a limit; 0 is none."""
    options = ExportOptions(
        kind=Kind.DETAIL,
        output=target,
        limit_bytes=limit_bytes,
        group_by="layer" if by_layer else "rank",
    )
    written = fit(
        joined.ranks,
        never_again,
        options,
        target,
        format_of(target),
        lambda *_: FileNotes((("io.tlexport.kind", "detail"),)),
        joined.clock.wall_offset_ns,
        Silent(),
    )
    written.publish()
    return written


@dataclass(frozen=True)
class Many:
    """Ranks that are many or large, and a limit that they exceed by far."""

    ranks: int
    sizes: Sizes
    limit_bytes: int = 64 << 10
    clock_of: Callable[[int], Clock] = lambda _rank: WALL

    def sources(self) -> list[MadeSource]:
        return [
            MadeSource(rank, sizes=self.sizes, clock=self.clock_of(rank))
            for rank in range(self.ranks)
        ]


SMALL = Sizes(steps=3, tasks=300, ops=2, planes=1, calls=20, samples=10, names=40, streams=2)
LARGE = Sizes(steps=5, tasks=3000, ops=5, planes=2, calls=150, samples=100)
MANY = {
    "small ranks of two hosts": Many(24, SMALL, clock_of=hosted),
    "large ranks, each alone first": Many(3, LARGE),
}


@pytest.fixture(scope="module", params=MANY)
def many(request: pytest.FixtureRequest) -> Many:
    return MANY[request.param]


@pytest.fixture(scope="module")
def gathered(many: Many, tmp_path_factory: pytest.TempPathFactory) -> JoinedRanks:
    """The shares of many ranks, gathered while they were read."""
    target = tmp_path_factory.mktemp("many") / "timeline.pftrace"
    joined = joined_ranks(many.sources(), many.limit_bytes, target)
    assert any(share.tracks.floors for share in joined.ranks), "what they are made for"
    return joined


@pytest.fixture(scope="module")
def ungathered(many: Many, tmp_path_factory: pytest.TempPathFactory) -> JoinedRanks:
    """The same shares as they are."""
    target = tmp_path_factory.mktemp("many") / "timeline.pftrace"
    joined = joined_ranks(many.sources(), 0, target)
    assert not any(share.tracks.floors for share in joined.ranks)
    return joined


@pytest.mark.parametrize("by_layer", [False, True], ids=["by rank", "by layer"])
def test_gathering_in_stages_loses_nothing(
    many: Many,
    gathered: JoinedRanks,
    ungathered: JoinedRanks,
    tmp_path: Path,
    by_layer: bool,
) -> None:
    """Count, busy time and ends of every row are those of all records; so are ranges of counters.

    Arrows that are not drawn are counted.
    """
    exact, small = tmp_path / "exact.pftrace", tmp_path / "small.pftrace"
    fitted(ungathered, 0, exact, by_layer=by_layer)
    written = fitted(gathered, many.limit_bytes, small, by_layer=by_layer)
    assert small.stat().st_size <= many.limit_bytes < exact.stat().st_size
    assert list(contents(tmp_path)) == ["exact.pftrace", "small.pftrace"]
    whole, found = (TraceProcessor.load(path.read_bytes()) for path in (exact, small))
    assert found.import_errors() == whole.import_errors() == []
    wanted = row_totals(whole, is_json=False)
    assert {
        row: replace(own, drawn=0, gathered=0)
        for row, own in row_totals(found, is_json=False).items()
    } == {row: replace(own, drawn=0) for row, own in wanted.items()}
    ranges, wanted_ranges = (
        {row: (own.least, own.greatest) for row, own in counter_totals(one, is_json=False).items()}
        for one in (found, whole)
    )
    assert ranges == wanted_ranges
    lost = sum(own.rows for own in written.omissions if "gathered" in own.reason)
    assert arrow_count(found) + lost == arrow_count(whole) > 0


def arrow_count(processor: TraceProcessor) -> int:
    ((count,),) = processor.rows("SELECT count(*) FROM flow")
    return int(count)


@given(
    ranks=st.integers(2, 4),
    tasks=st.integers(1, 150),
    calls=st.integers(0, 40),
    seed=st.integers(1, 1_000),
    limit_bytes=st.integers(500, 20_000),
    clock_of=st.sampled_from([hosted, lambda _rank: WALL]),
)
@settings(max_examples=4)
def test_processes_change_nothing_in_what_is_gathered(
    tmp_path_factory: pytest.TempPathFactory,
    pool: Executor,
    ranks: int,
    tasks: int,
    calls: int,
    seed: int,
    limit_bytes: int,
    clock_of: Callable[[int], Clock],
) -> None:
    """The same rows, gathered at the same powers, whether read here or by two processes."""
    sizes = Sizes(steps=3, tasks=tasks, ops=1, planes=2, calls=calls, samples=5, names=20)
    sources = [
        MadeSource(rank, sizes=sizes, clock=clock_of(rank), seed=seed) for rank in range(ranks)
    ]
    target = tmp_path_factory.mktemp("any") / "timeline.pftrace"
    made = []
    for workers in (made_pool(sources, 1), WorkerPool(lambda: pool, 2, Silent())):
        joined = joined_ranks(sources, limit_bytes, target, workers)
        fitted(joined, 0, target, by_layer=False)
        rows = [share.tracks for share in joined.ranks]
        made.append(
            (
                target.read_bytes(),
                [(own.rank, own.floors, own.arrows, own.omissions) for own in rows],
                joined.clock,
                joined.requests,
            )
        )
    assert made[0] == made[1]


# -- errors travel -----------------------------------------------------------------------------

TRACE = Path("run/trace_view.json")
ERRORS: list[TimelineError] = [
    errors.TimelineError("it failed."),
    errors.SourceError(TRACE, "is not valid JSON.", offset=17, do="Export it again."),
    errors.SourceError(TRACE, "is empty."),
    errors.NoProfileError(TRACE, "holds no profile."),
    errors.RankIdentityError(TRACE, "has no rank.", do="Give one."),
    errors.WorkerError(3, "its process died"),
    errors.RecordError("tasks, row 3: ends before it starts."),
    errors.OutputError("timeline.pftrace exists."),
    errors.UsageError("ranks: no number."),
    errors.SelectionError("rank 9 is not in run."),
    errors.LimitError("the limit is too small."),
]


def test_every_error_is_tried() -> None:
    kinds = {getattr(errors, name) for name in errors.__all__ if name.endswith("Error")}
    assert {type(error) for error in ERRORS} == kinds


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_survive_the_way_between_processes(error: TimelineError) -> None:
    """With message, attributes and exit code, however often they are passed on."""
    passed_on = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(error))))
    assert type(passed_on) is type(error)
    assert str(passed_on) == str(error)
    assert passed_on.args == error.args
    assert vars(passed_on) == vars(error)
    assert passed_on.exit_code == error.exit_code


@pytest.mark.parametrize(
    "error",
    # WorkerError tells of a process, so no process raises it.
    [error for error in ERRORS if not isinstance(error, WorkerError)],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_a_process_are_those_of_its_rank(error: TimelineError, pool: Executor) -> None:
    """What a worker raises is raised here as it was."""
    workers = WorkerPool(lambda: pool, 2, Silent())
    (source,) = made_sources(1, {0: Fault(error)})
    with pytest.raises(type(error)) as caught:
        list(workers.results([source], draw_rank_from_source, [REQUEST]))
    assert str(caught.value) == str(error)
    assert vars(caught.value) == vars(error)


# -- Dask --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a cluster of two processes, one task each at a time."""
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    import dask

    with (
        # A task whose worker is lost once is as lost as one whose workers are lost four times.
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster.scheduler_address.replace("tcp://", "dask://")


@pytest.fixture
def executor(cluster: str) -> Iterator[str]:
    """The cluster's address; a client that a test leaves behind does not meet the next test."""
    yield cluster
    close_client()


def close_client() -> bool:
    """Close the client of this process; whether there was one."""
    import distributed

    try:
        client = distributed.default_client()
    except ValueError:
        return False
    client.close()
    return True


@pytest.mark.parametrize("way", ["all", "coarsened", "leading steps"])
def test_a_cluster_writes_the_same_bytes(
    command: Command, shelf: ProfileShelf, executor: str, way: str
) -> None:
    path = shelf.get("mindspore-2.1", ranks=3).path
    options = ["--kind", "detail", *sized(command, path, FITS[way]), "--json"]
    alone = command(path, *options, "-j", "1")
    assert alone.code == 0
    assert command(path, *options, "--executor", executor) == alone


def test_a_cluster_tells_ranks_that_cannot_be_read(
    command: Command, shelf: ProfileShelf, tmp_path: Path, executor: str
) -> None:
    """The error or the warning of a rank is the one that this process would give."""
    damage = DAMAGES["text cut off"]
    profile = shelf.copy(damage.layout, tmp_path / "run", ranks=3)
    damage.strike(profile, 1)
    for more in ((), ("--keep-going",)):
        options = (profile.path, "--kind", "detail", *more)
        assert command(*options, "--executor", executor) == command(*options, "-j", "1")


def test_a_lost_worker_of_a_cluster_is_blamed_on_its_rank(executor: str) -> None:
    """And on none of those that waited for the same worker at the time."""
    sources = made_sources(6, {1: Death(after_seconds=0.5), 0: Nap(0.3), 2: Nap(0.3), 3: Nap(0.3)})
    workers = worker_pool_for(sources, ReadingOptions(executor=executor, keep_going=True), Silent())
    assert ranks_read(workers, sources) == [0, 2, 3, 4, 5]
    assert workers.failures.keys() == {1}
    assert "died" in workers.failures[1]


def test_an_export_leaves_no_client_behind(
    command: Command, shelf: ProfileShelf, executor: str
) -> None:
    """It would be the one that the next user of Dask in this process gets."""
    path = shelf.get("mindspore-2.1", ranks=3).path
    assert command(path, "--executor", executor).code == 0
    assert not close_client()


def test_an_address_of_no_cluster_is_wrong_usage(command: Command, shelf: ProfileShelf) -> None:
    outcome = command(shelf.get("torch-db", ranks=3).path, "--executor", "foo")
    assert (outcome.code, outcome.out, outcome.files) == (2, "", {})
    assert outcome.err.startswith("tlexport: --executor foo is ")
    assert "dask://HOST:PORT" in outcome.err


def test_an_address_where_nobody_answers_is_wrong_usage(
    command: Command, shelf: ProfileShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the address; nothing is read, nothing written."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    monkeypatch.setattr(jobs, "_CONNECT_SECONDS", 1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"dask://127.0.0.1:{silent.getsockname()[1]}"
        outcome = command(shelf.get("torch-db", ranks=3).path, "--executor", address)
    assert (outcome.code, outcome.out, outcome.files) == (2, "", {})
    assert re.match(rf"tlexport: --executor {address}: no scheduler answers there", outcome.err)
