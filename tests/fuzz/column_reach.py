"""Which columns of each layout reach the picture or the report, and which are known not to.

    python tests/fuzz columns [--seeds NAME ...] [--write]

Every named column of a small profile gets other values, and what is drawn and told is compared. The
columns that nothing comes of are kept in `unread_columns.json`: names of machines, settings of the
profiler, what another viewer needs, what follows from other columns or comes again in another file.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from simulator.layouts import LAYOUTS
from tests.fuzz.extremes import EXTREMES, OTHER, Extreme, Special
from tests.fuzz.file_columns import Column, columns_of, unnumbered_name
from tests.fuzz.input_tree import InputTree
from tests.fuzz.long_runs import run_unhindered
from tests.fuzz.sweep_seeds import Seed, made_seeds, real_seeds
from tests.fuzz.whole_program import WHOLE
from timeline.commands.export import export
from timeline.errors import TimelineError

KEPT = Path(__file__).with_name("unread_columns.json")
TWINS = ("mindformers",)
"""Layouts whose files have the same columns as those of another one."""
SEEDS = [seed for seed in made_seeds() if seed.name in LAYOUTS and seed.name not in TWINS]
_ABSENT = next(one for one in EXTREMES if one.value is Special.ABSENT)
_TRIED = ((OTHER, False), (OTHER, True), (_ABSENT, False))
"""What a column is set to, in one row or in all, until anything changes."""
_NAMELESS = re.compile(r"(bytes|number|column) \d+(:\d+)?")
"""Places of packed records and of plain text, which are no columns."""


class ColumnReach:
    """Changes columns of a seed one by one, in a directory that is removed with it."""

    def __init__(self, seed: Seed) -> None:
        self._place = tempfile.TemporaryDirectory(prefix="tlexport-columns-")
        self._root = Path(self._place.name)
        self._capture = self._root / "capture"
        self._capture.mkdir()
        seed.write(self._capture)
        self._tree = InputTree(self._capture)
        self._columns: dict[tuple[str, str], list[tuple[Path, Column]]] = {}
        for path in self._tree.paths:
            file = unnumbered_name(path)
            for column in columns_of(path):
                if not _NAMELESS.fullmatch(column.name):
                    self._columns.setdefault((file, column.name), []).append((path, column))
        self._plain = self._outcome({})

    def close(self) -> None:
        """Remove all files."""
        self._place.cleanup()

    @property
    def places(self) -> list[tuple[str, str]]:
        """All columns, each with its file, in whose name # stands for numbers."""
        return list(self._columns)

    def reaches(self, place: tuple[str, str]) -> bool:
        """Whether anything drawn or told is another, or all is refused, if a column is another."""
        return any(
            self._outcome(changed) != self._plain for changed in self._changed(self._columns[place])
        )

    def _changed(self, files: Sequence[tuple[Path, Column]]) -> Iterator[dict[Path, bytes]]:
        for extreme, one in _TRIED:
            changed = {
                path: content
                for path, column in files
                if (content := _set(column, self._tree.content(path), extreme, one)) is not None
            }
            if changed:
                yield changed

    def _outcome(self, changed: Mapping[Path, bytes]) -> tuple[bytes, bytes] | None:
        target = self._root / "drawn.pftrace"
        target.unlink(missing_ok=True)
        with self._tree.holding(changed):
            try:
                report = export(self._capture, target, **WHOLE)
            except TimelineError:
                return None
        drawn = b"".join(output.path.read_bytes() for output in report.outputs)
        return drawn, report.to_json()


def _set(column: Column, content: bytes, extreme: Extreme, one: bool) -> bytes | None:
    changed = column.change(content, extreme, one)
    return None if changed == content else changed


def unread_columns() -> dict[str, dict[str, list[str]]]:
    """The columns that are known to reach nothing, by layout and file."""
    found: dict[str, dict[str, list[str]]] = json.loads(KEPT.read_text("utf-8"))
    return found


def main(arguments: Sequence[str]) -> int:
    """Try all columns; 1 if others reach nothing than are known to."""
    parser = argparse.ArgumentParser(
        prog="tests/fuzz columns", description="Columns that are read."
    )
    parser.add_argument("--seeds", nargs="*", default=[], help="their names (default: all)")
    parser.add_argument(
        "--write", action="store_true", help="take those that reach nothing as known"
    )
    options = parser.parse_args(arguments)
    kept = unread_columns() if KEPT.exists() else {}
    different = False
    with run_unhindered() as tidy:
        for seed in _chosen(options.seeds):
            found = _unread(seed)
            tidy(0)
            known = kept.get(seed.name, {})
            for file in sorted(found.keys() | known.keys()):
                now, before = set(found.get(file, ())), set(known.get(file, ()))
                for column in sorted(now ^ before):
                    said = "reaches nothing any more" if column in now else "reaches something now"
                    print(f"{seed.name}: {file}: {column} {said}", flush=True)
            different |= found != known
            if seed in SEEDS:
                kept[seed.name] = found
    if options.write:
        text = json.dumps(kept, indent=1, ensure_ascii=True)
        KEPT.write_text(f"{text}\n", encoding="utf-8")
    return int(different and not options.write)


def _chosen(names: Sequence[str]) -> list[Seed]:
    if not names:
        return SEEDS
    return [seed for seed in (*made_seeds(), *real_seeds()) if seed.name in names]


def _unread(seed: Seed) -> dict[str, list[str]]:
    reach = ColumnReach(seed)
    found: dict[str, list[str]] = {}
    try:
        for file, column in reach.places:
            if not reach.reaches((file, column)):
                found.setdefault(file, []).append(column)
    finally:
        reach.close()
    return {file: sorted(columns) for file, columns in sorted(found.items())}
