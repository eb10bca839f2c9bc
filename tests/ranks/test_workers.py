"""Proves how many processes read ranks, in which order, and how they are started and ended."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.support.made_source import Deed, MadeSource, Nap, made_sources
from tests.support.ranks_in_processes import REQUEST
from tests.support.sessions import PROC
from timeline.options import ReadingOptions
from timeline.progress import Silent
from timeline.ranks import executors
from timeline.ranks.rank_work import draw_rank_from_source
from timeline.ranks.workers import (
    RANKS_PER_PROCESS,
    WORTH_PROCESSES_BYTES,
    WorkerPool,
    worker_pool_for,
)

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
