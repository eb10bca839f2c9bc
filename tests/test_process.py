"""Proves that a command ends at once, and yet does all that is to be done before."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ENDS = """
import atexit, sys, threading, time
from timeline.process import exit_with

class Kept:
    def __del__(self):
        print("taken apart", flush=True)

kept = Kept()

def wait():
    time.sleep(0.2)
    print("waited for")

def run():
    atexit.register(print, "cleaned up")
    threading.Thread(target=wait).start()
    {ends}

exit_with(run)
"""


def ended(ends: str) -> subprocess.CompletedProcess[str]:
    """A process whose function ends in some way."""
    command = [sys.executable, "-c", ENDS.format(ends=ends)]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


@pytest.mark.parametrize(
    ("ends", "code"), [("return 0", 0), ("return 4", 4), ("sys.exit(0)", 0), ("sys.exit(2)", 2)]
)
def test_a_process_is_not_taken_apart(ends: str, code: int) -> None:
    """Threads and what is registered come first, and what was printed is there, in a pipe too."""
    ran = ended(ends)
    assert (ran.returncode, ran.stderr) == (code, "")
    assert ran.stdout == "waited for\ncleaned up\n"


def test_an_error_ends_as_ever() -> None:
    """The interpreter tells it, with its exit code."""
    ran = ended("raise ValueError(7)")
    assert ran.returncode == 1
    assert ran.stderr.endswith("ValueError: 7\n")
    assert ran.stdout.startswith("waited for\ncleaned up\n")


TOUCHES = """
import resource, threading
{tune}
import numpy as np

def touch():
    held = [np.ones(3_900_000, np.uint8) for _ in range(4)]

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def in_a_thread():
    thread = threading.Thread(target=touch)
    thread.start()
    thread.join()

touch()
before = faults()
for _ in range(5):
    touch()
    in_a_thread()
print(faults() - before)
"""
TUNE = "from timeline.process import tune_for_one_command; tune_for_one_command()"


def pages_touched_anew(tune: str) -> int:
    """How many pages the system gives to ten times the same four arrays, in two threads."""
    command = [sys.executable, "-c", TOUCHES.format(tune=tune)]
    return int(subprocess.run(command, capture_output=True, check=True, timeout=30).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told to")
def test_freed_memory_is_used_again() -> None:
    """By whichever thread; without the settings, most pages are given back and asked for again."""
    assert pages_touched_anew(TUNE) < 1_000 < pages_touched_anew("")
