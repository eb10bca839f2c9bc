"""Which columns of each layout reach the picture or the report, and which are known not to.

Every named column of a small profile gets other values, and what is drawn and told is compared. The
columns that nothing comes of are kept in `unread_columns.json`: names of machines, settings of the
profiler, what another viewer needs, what follows from other columns or comes again in another file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from simulator.layouts import LAYOUTS
from tests.fuzz.extremes import EXTREMES, OTHER, Extreme, Special
from tests.fuzz.file_columns import Column, columns_of, unnumbered_name
from tests.fuzz.oracles import written
from tests.fuzz.small_profiles import EVERY_LAYOUT, SmallProfile
from tests.fuzz.whole_program import WHOLE
from timeline.commands.export import export
from timeline.errors import TimelineError

KEPT = Path(__file__).with_name("unread_columns.json")
TWINS = ("mindformers",)
"""Layouts whose files have the same columns as those of another one."""
SEEDS = [layout for layout in EVERY_LAYOUT if layout in LAYOUTS and layout not in TWINS]
_ABSENT = next(one for one in EXTREMES if one.value is Special.ABSENT)
_TRIED = ((OTHER, False), (OTHER, True), (_ABSENT, False))
"""What a column is set to, in one row or in all, until anything changes."""
_NAMELESS = re.compile(r"(bytes|number|column) \d+(:\d+)?")
"""Places of packed records and of plain text, which are no columns."""


class ColumnReach:
    """Changes columns of a layout one by one."""

    def __init__(self, layout: str, root: Path) -> None:
        self._profile, self._target = SmallProfile(layout, root), root / "drawn.pftrace"
        self._columns: dict[tuple[str, str], list[tuple[Path, Column]]] = {}
        for path in self._profile.files:
            file = unnumbered_name(path)
            for column in columns_of(path):
                if not _NAMELESS.fullmatch(column.name):
                    self._columns.setdefault((file, column.name), []).append((path, column))
        self._plain = self._outcome({})

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
                if (content := _set(column, self._profile.files[path], extreme, one)) is not None
            }
            if changed:
                yield changed

    def _outcome(self, changed: Mapping[Path, bytes]) -> tuple[bytes, bytes] | None:
        self._target.unlink(missing_ok=True)
        with self._profile.holding(changed):
            try:
                report = export(self._profile.capture, self._target, **WHOLE)
            except TimelineError:
                return None
        return written(report), report.to_json()


def _set(column: Column, content: bytes, extreme: Extreme, one: bool) -> bytes | None:
    changed = column.change(content, extreme, one)
    return None if changed == content else changed


def unread_columns() -> dict[str, dict[str, list[str]]]:
    """The columns that are known to reach nothing, by layout and file."""
    found: dict[str, dict[str, list[str]]] = json.loads(KEPT.read_text("utf-8"))
    return found
