"""Small profiles of every layout, files of which are changed and put back."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from simulator.model import Run
from simulator.simulation import make_run
from tests.fuzz.promises import BrokenPromise
from tests.support.profile_shelf import VARIANTS, WRITERS

EVERY_LAYOUT = WRITERS | VARIANTS


@functools.cache
def small_run() -> Run:
    """Simulate one rank and two steps of the fewest operators."""
    return make_run(ranks=1, steps=2, ops_per_step=3, planes=1)


class SmallProfile:
    """The small run in a layout, in a directory of its own."""

    def __init__(self, layout: str, root: Path) -> None:
        self.capture = Path(tempfile.mkdtemp(prefix="capture-", dir=root))
        EVERY_LAYOUT[layout](small_run(), self.capture)
        self.files = {
            path: path.read_bytes() for path in sorted(self.capture.rglob("*")) if path.is_file()
        }

    @contextmanager
    def holding(self, changed: Mapping[Path, bytes]) -> Iterator[None]:
        """Change some files while it is open.

        Raises:
            BrokenPromise: at the end they are not as they were when it was opened.
        """
        try:
            for path, content in changed.items():
                path.write_bytes(content)
            yield
            held = {path: path.read_bytes() for path in self.capture.rglob("*") if path.is_file()}
            if held != {**self.files, **changed}:
                raise BrokenPromise("the input is not what it was")
        finally:
            for path in changed:
                path.write_bytes(self.files[path])
