"""Ends exports by signals at random moments, and looks for what they leave behind.

    python -m tests.bench.interrupts [--times 500] [--seed 0]

An export of two processes is ended by SIGINT, SIGTERM, SIGHUP or SIGKILL, sent to it or to its
group, at a moment anywhere in its run. It must have ended within a second; then no process of its
session may run (2 s after SIGKILL), nothing may be in TMPDIR, and nothing beside the output but a
whole one.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tests.bench.runs import TLEXPORT
from tests.support.places import ROOT
from tests.support.sessions import session_of

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
ENDED_SECONDS, GONE_SECONDS, GIVEN_UP_SECONDS = 1.0, 2.0, 15.0
MADE = ("--ranks", "8", "--steps", "200")


@dataclass(frozen=True)
class Ended:
    """How an export ended: after how many seconds, and what is wrong with that."""

    seconds: float
    wrong: tuple[str, ...]
    was_done: bool


class Place:
    """Where exports run: a profile, a directory for the output, and one for temporary files."""

    def __init__(self, root: Path) -> None:
        self.profile, self.out, self.temporary = root / "profile", root / "out", root / "tmp"
        for directory in (self.out, self.temporary):
            directory.mkdir()
        make: list[str | Path] = [
            sys.executable,
            ROOT / "examples" / "make_profile.py",
            self.profile,
            *MADE,
        ]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        # With its bytecode, as it is installed: interrupts wait for the imports.
        self._environment = os.environ | {
            "TMPDIR": str(self.temporary),
            "PYTHONPYCACHEPREFIX": str(root / "bytecode"),
            "PYTHONDONTWRITEBYTECODE": "",
        }
        self.export().wait()
        begin = time.monotonic()
        self.export().wait()
        self.seconds = time.monotonic() - begin
        self.whole_bytes = self.target.stat().st_size

    @property
    def target(self) -> Path:
        """The file that exports write."""
        return self.out / "timeline.pftrace"

    def export(self) -> subprocess.Popen[bytes]:
        """Start an export in a session of its own."""
        self.target.unlink(missing_ok=True)
        options = ("--kind", "detail", "-j", "2", "-o", self.target)
        return subprocess.Popen(
            [*TLEXPORT, self.profile, *options],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def interrupt(self, number: signal.Signals, after_s: float, *, group: bool) -> Ended:
        """Start an export, end it, and look around."""
        process = self.export()
        time.sleep(after_s)
        was_done = process.poll() is not None
        begin = time.monotonic()
        if not was_done:
            (os.killpg if group else os.kill)(process.pid, number)
        wrong = []
        try:
            process.wait(GIVEN_UP_SECONDS)
        except subprocess.TimeoutExpired:
            wrong.append("never ended")
        seconds = time.monotonic() - begin
        if seconds > ENDED_SECONDS:
            wrong.append("ended late")
        until = time.monotonic() + GONE_SECONDS
        while running := session_of(process.pid):
            if time.monotonic() > until:
                wrong.append("left a process")
                for each in running:
                    os.kill(each.pid, signal.SIGKILL)
                break
            time.sleep(0.01)
        process.wait()
        for path in self.out.iterdir():
            if path != self.target:
                wrong.append("left a file beside the output")
                path.unlink()
            elif path.stat().st_size != self.whole_bytes:
                wrong.append("left half an output")
        if number != signal.SIGKILL and any(self.temporary.iterdir()):
            wrong.append("left a temporary file")
        subprocess.run(["rm", "-rf", *self.temporary.iterdir()], check=True)
        return Ended(seconds, tuple(wrong), was_done)


def main() -> None:
    """Interrupt so many exports, and print what they left."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.interrupts", description=__doc__)
    parser.add_argument("--times", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chosen = random.Random(asked.seed)
    wrong, counts = Counter[str](), Counter[str]()
    longest_s = 0.0
    with tempfile.TemporaryDirectory() as directory:
        place = Place(Path(directory))
        print(f"an export takes {place.seconds:.1f} s", flush=True)
        for number in range(asked.times):
            kind, group = SIGNALS[number % len(SIGNALS)], bool(number // len(SIGNALS) % 2)
            ended = place.interrupt(kind, chosen.uniform(0, 1.05 * place.seconds), group=group)
            counts["done before" if ended.was_done else kind.name] += 1
            longest_s = max(longest_s, ended.seconds)
            for what in ended.wrong:
                wrong[f"{kind.name} to the {'group' if group else 'process'}: {what}"] += 1
                print(f"{number}: {kind.name}: {what} ({ended.seconds:.2f} s)", flush=True)
    print(f"{asked.times} exports: {dict(counts)}; the longest took {longest_s:.2f} s to end")
    print(dict(wrong) or "nothing was left, and all ended in time")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
