"""A target to fuzz: a function that reads one file of a capture, and what it starts from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from timeline.records.tables import Records

Still = Callable[[bytes], bool]
"""Whether a smaller input still shows the same fault."""


@dataclass(frozen=True)
class Form:
    """What the bytes of an input are: how they are changed, and made small."""

    suffix: str
    most_bytes: int
    change: Callable[[bytes, Random], bytes]
    shrink: Callable[[bytes, Still], bytes]


@dataclass(frozen=True)
class Target:
    """One reader.

    capture writes a valid capture into a directory and gives the files of it that take the bytes of
    """

    name: str
    form: Form
    capture: Callable[[Path], Sequence[Path]]
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[Path], Records | None]


Reader = Callable[[Path], "Records | None"]
TARGETS: dict[str, Target] = {}


def target(
    name: str,
    *,
    form: Form,
    capture: Callable[[Path], Sequence[Path]],
    seeds: Callable[[], Sequence[bytes]],
) -> Callable[[Reader], Reader]:
    """Make the decorated function a target: it is given the directory of the capture."""

    def add(read: Reader) -> Reader:
        TARGETS[name] = Target(name, form, capture, seeds, read)
        return read

    return add


def chosen(names: Sequence[str]) -> list[Target]:
    """The targets that have these names, or begin with them; all for none.

    Raises:
        SystemExit: a name stands for no target.
    """
    for name in names:
        if not any(_fits(name, known) for known in TARGETS):
            raise SystemExit(f"no target {name!r}; there are {', '.join(TARGETS)}.")
    return [
        found
        for known, found in TARGETS.items()
        if not names or any(_fits(name, known) for name in names)
    ]


def _fits(name: str, known: str) -> bool:
    return known == name or known.startswith(f"{name}-")
