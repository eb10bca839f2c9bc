"""Proves how many processes read ranks, and that those that die or fail are told by their rank."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.made_source import Death, Deed, Fault, MadeSource, Nap, made_sources
from tests.support.ranks_in_processes import REQUEST, made_pool, ranks_read, wait_until
from tests.support.sessions import PROC
from timeline import errors
from timeline.analysis.selected_rank import ChosenDetail
from timeline.errors import SourceError, TimelineError, WorkerError
from timeline.options import ReadingOptions
from timeline.progress import Silent
from timeline.ranks import executors
from timeline.ranks.rank_work import draw_rank_from_source
from timeline.ranks.read_ranks import draw_again, read_ranks
from timeline.ranks.workers import (
    RANKS_PER_PROCESS,
    WORTH_PROCESSES_BYTES,
    WorkerPool,
    worker_pool_for,
)

# -- processes -------------------------------------------------------------------------------------


_Result = TypeVar("_Result")

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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


def test_a_pool_that_breaks_while_a_process_starts_is_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The pipes that a new process is to get were closed because another one had died."""
    executor = executors.Processes(2)

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
from timeline.ranks.executors import Processes


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
from timeline.process import tune_for_one_command
tune_for_one_command()
from timeline.ranks.executors import Processes
stop = threading.Event()
for _ in range({threads}):
    threading.Thread(target=stop.wait).start()
with Processes(2) as executor:
    print(executor.submit(sum, (1, 2)).result(), executor._mp_context.get_start_method())
stop.set()
"""
    command = [sys.executable, "-c", script]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.split() == ["3", method]


# -- lost ranks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("culprit", "deeds"),
    [
        (3, {0: Nap(0.3), 1: Nap(0.3), 2: Nap(0.1), 3: Death()}),
        (0, {0: Death(after_seconds=0.3), 1: Nap(0.1)}),
    ],
    ids=["behind slow ones", "before quick ones"],
)
def test_a_lost_process_is_blamed_on_its_rank(culprit: int, deeds: dict[int, Deed]) -> None:
    """And on no other rank that was in work at the time."""
    sources = made_sources(6, deeds)
    with pytest.raises(
        WorkerError, match=rf"^rank {culprit}: .*process died.*--keep-going"
    ) as caught:
        ranks_read(made_pool(sources, 2), sources)
    assert caught.value.exit_code == 1


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
    results = workers.results(sources, draw_rank_from_source, [REQUEST] * len(sources))
    assert [drawn.facts.rank for _, drawn in results] == [0, 3]
    assert list(workers.failures) == [1, 2, 4]
    assert workers.failures[1] == "one: is broken."
    assert workers.failures[2] == "two: is broken."
    assert re.match(r"rank 4: .*not enough memory", workers.failures[4])


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
        bystander.join(10)


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
            drawn_again = draw_again(joined, workers, ChosenDetail(frozenset({1}), (2,)))
        except TimelineError as error:
            assert "one: is gone." in str(error)
        else:
            assert [drawn.facts.rank for drawn in drawn_again] == [0, 2]
            assert workers.failures == {1: "one: is gone."}


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
    errors.RegressionError("steps are longer."),
]


def test_every_error_is_tried() -> None:
    kinds = {getattr(errors, name) for name in vars(errors) if name.endswith("Error")}
    assert {type(error) for error in ERRORS} == kinds


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
