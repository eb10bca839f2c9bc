"""Proves that an export that is interrupted or ended leaves no file and no process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import timeline
from tests.support.made_source import Interrupt, made_sources
from tests.support.profile_shelf import ProfileShelf
from tests.support.ranks_in_processes import contents, made_pool, ranks_read, wait_until
from tests.support.sessions import PROC, SessionProcess, session_of
from timeline.process import interrupted_by_signals
from timeline.ranks import executors

PACKAGE = Path(timeline.__file__).parent
LARGE_BYTES = 60_000_000
SLEEP = "for _ in range(3000): time.sleep(0.01)"
"""Half a minute, in pieces: Python does not look for a signal that came just before it sleeps."""


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


def workers_of(leader: int) -> list[SessionProcess]:
    """The processes that read ranks; the one beside them only keeps count of what they share."""
    return [
        process
        for process in session_of(leader)
        if process.parent == leader and "resource_tracker" not in process.command
    ]


def is_starting(leader: int) -> bool:
    """Whether a worker is there, and has done next to nothing."""
    return any(worker.cpu_seconds >= 0.02 for worker in workers_of(leader))


def is_reading(leader: int) -> bool:
    """Whether two workers are at work."""
    workers = workers_of(leader)
    return len(workers) == 2 and all(worker.cpu_seconds >= 0.15 for worker in workers)


@contextlib.contextmanager
def tlexport(
    here: Path, *arguments: str | Path, **environment: str
) -> Iterator[subprocess.Popen[str]]:
    """The command in a session of its own, of which nothing outlives the test."""
    process = subprocess.Popen(
        [Path(sysconfig.get_path("scripts")) / "tlexport", *arguments],
        cwd=here,
        env=os.environ | {"PYTHONFAULTHANDLER": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if PROC.is_dir():
            while running := session_of(process.pid):  # one may start another before it ends
                for each in running:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(each.pid, signal.SIGKILL)
        process.kill()
        process.communicate(timeout=10)


def export_of(
    profile: Path, here: Path
) -> contextlib.AbstractContextManager[subprocess.Popen[str]]:
    """An export by two processes."""
    output = here / "timeline.pftrace"
    return tlexport(here, profile, "--kind", "detail", "-j", "2", "-o", output)


def output_of(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What an export that has to end prints; fails with its stacks if it does not end."""
    try:
        return process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        _, stacks = process.communicate(timeout=10)
        pytest.fail(f"the export does not end:\n{stacks}")


@pytest.mark.skipif(not PROC.is_dir(), reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("moment", "send"),
    [(is_starting, os.killpg), (is_reading, os.kill)],
    ids=["starting, to all", "reading, to the parent"],
)
def test_an_interrupt_leaves_nothing(
    large: Path, tmp_path: Path, moment: Callable[[int], bool], send: Callable[[int, int], None]
) -> None:
    """Exit code 130 and one line at once; no file, not even a temporary one, and no process."""
    with export_of(large, tmp_path) as process:
        assert wait_until(lambda: moment(process.pid), 20)
        send(process.pid, signal.SIGINT)
        out, err = output_of(process)
        assert process.returncode == 130
        assert (out, err) == ("", "tlexport: interrupted; nothing was written.\n")
        assert contents(tmp_path) == {}
        assert wait_until(lambda: not session_of(process.pid), 3)


@pytest.mark.skipif(not PROC.is_dir(), reason="processes are found in /proc")
@pytest.mark.parametrize("name", ["SIGHUP", "SIGKILL"])
def test_workers_end_with_their_parent(large: Path, tmp_path: Path, name: str) -> None:
    """However it ends: by `timeout`, with its terminal, or for want of memory."""
    number = signal.Signals[name]
    with export_of(large, tmp_path) as process:
        assert wait_until(lambda: is_reading(process.pid), 20)
        process.send_signal(number)
        _, said = output_of(process)
        ended = number != signal.SIGKILL
        assert process.returncode == (128 + number if ended else -number)
        assert not ended or said == "tlexport: terminated; nothing was written.\n"
        assert contents(tmp_path) == {}
        assert wait_until(lambda: not session_of(process.pid), 3)


@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent as on POSIX")
@pytest.mark.parametrize(
    ("words", "name"),
    [(("run",), "SIGINT"), (("show", "a"), "SIGTERM"), (("compare", "a", "b"), "SIGHUP")],
)
def test_imports_do_not_hold_a_signal_back(tmp_path: Path, words: Sequence[str], name: str) -> None:
    """NumPy takes an interrupt of its import for a broken installation, and imports take long."""
    (tmp_path / "numpy.py").write_text(
        "import pathlib, time\n"
        "pathlib.Path('importing').touch()\n"
        "try:\n"
        f"    {SLEEP}\n"
        "except BaseException as error:\n"
        "    raise ImportError('numpy is broken') from error\n"
    )
    number = signal.Signals[name]
    first = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with tlexport(tmp_path, *words, PYTHONPATH=first) as process:
        assert wait_until((tmp_path / "importing").exists, 20)
        process.send_signal(number)
        said = output_of(process)
    what = "interrupted" if number == signal.SIGINT else "terminated"
    assert (process.returncode, *said) == (
        128 + number,
        "",
        f"tlexport: {what}; nothing was written.\n",
    )


@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent as on POSIX")
@pytest.mark.parametrize("module", ["pathlib", "unicodedata"])
def test_the_first_imports_do_not_hold_an_interrupt_back(tmp_path: Path, module: str) -> None:
    """What the command itself imports takes a tenth of a second on a busy machine."""
    (tmp_path / f"{module}.py").write_text(
        f"import os, time\nopen('importing', 'w').close()\n{SLEEP}\n"
    )
    first = os.pathsep.join([str(tmp_path), str(PACKAGE.parent)])
    with subprocess.Popen(
        [sys.executable, "-S", "-m", "timeline", "run"],  # nothing else imports it before
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": first},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert wait_until((tmp_path / "importing").exists, 20)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=10)
    assert (process.returncode, *said) == (130, "", "tlexport: interrupted; nothing was written.\n")


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
            with executors.starting_processes():
                os.kill(os.getpid(), number)
                time.sleep(0.05)
                reached = True
            time.sleep(5)
    finally:
        done.set()
        beside.join(10)
    assert reached


@pytest.mark.skipif(os.name != "posix", reason="interrupts are sent as on POSIX")
def test_one_process_is_interrupted_while_it_reads() -> None:
    """A large rank is not read to its end first."""
    sources = made_sources(1, {0: Interrupt()})
    with pytest.raises(KeyboardInterrupt):
        ranks_read(made_pool(sources, 1), sources)
