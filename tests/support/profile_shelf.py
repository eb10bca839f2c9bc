"""Profiles of simulated runs on disk that tests share, and copies that they alter."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.layouts import LAYOUTS, SPARSE_LAYOUTS, Writer
from simulator.model import Run
from simulator.simulation import make_run
from simulator.writers.cann_raw import write_raw
from simulator.writers.database import write_torch_database
from simulator.writers.kineto import write_kineto, write_merged_kineto
from simulator.writers.mindspore.display import write_mindspore_display
from simulator.writers.mindspore.text import write_mindspore_text
from simulator.writers.msprof_sqlite import write_msprof_sqlite
from simulator.writers.tables import write_op_summary, write_summary_directory
from simulator.writers.trace_json.mindspore_text import write_mindspore_export
from simulator.writers.trace_json.mindstudio import write_mindformers, write_mindstudio
from simulator.writers.trace_json.msprof import CANN_9, UNKNOWN_TYPES

Event = dict[str, Any]
"""One trace event of a JSON profile."""

WRITERS: dict[str, Writer] = LAYOUTS | {
    "mindformers-2.1": functools.partial(write_mindformers, layout="mindspore-2.1"),
    "mindstudio-exported-twice": functools.partial(write_mindstudio, older_export=True),
    "mindstudio-sliced": functools.partial(write_mindstudio, slices=3),
    "raw-hwts": functools.partial(write_raw, log="hwts", slices=12),
    "raw-v6": functools.partial(write_raw, log="v6"),
    "raw-49-MHz": functools.partial(write_raw, megahertz="49.000000"),
    "msprof-sqlite-numbered": functools.partial(write_msprof_sqlite, hccl="numbered"),
    "msprof-sqlite-launched": functools.partial(write_msprof_sqlite, hccl="launched"),
    "summary-directory": write_summary_directory,
    "kineto-2.2": functools.partial(write_kineto, base_ns=0),
    "kineto-announced": functools.partial(write_kineto, announced=True),
    "kineto-merged": write_merged_kineto,
    "kineto-alone": functools.partial(write_kineto, distributed=False),
    "mindspore-text-2.1": functools.partial(write_mindspore_text, version="2.1"),
    "mindspore-text-hccl": functools.partial(write_mindspore_text, hccl=True),
    "mindspore-2.6-tables": functools.partial(write_mindspore_export, trace=False),
    "mindspore-display": write_mindspore_display,
    "mindspore-display-1.5": functools.partial(write_mindspore_display, version="1.5"),
}
"""Everything that can be on disk, by name: the layouts, and what else their writers can do."""

VARIANTS: dict[str, Writer] = {
    "mindstudio-cann-9": functools.partial(write_mindstudio, dialect=CANN_9),
    "mindstudio-cann-9-trace": functools.partial(write_mindstudio, dialect=CANN_9, operators=False),
    "mindstudio-other-types": functools.partial(
        write_mindstudio, dialect=UNKNOWN_TYPES, operators=False
    ),
    "op-summary-cann-9": functools.partial(write_op_summary, dialect=CANN_9, wholes=True),
    "task-time-cann-9": functools.partial(write_op_summary, dialect=CANN_9, operators=False),
    "msprof-sqlite-cann-9": functools.partial(write_msprof_sqlite, cann_9=True),
    "msprof-sqlite-no-operators": functools.partial(
        write_msprof_sqlite, cann_9=True, operators=False
    ),
    "torch-db-no-operators": functools.partial(write_torch_database, operators=False),
}
"""The same layouts as other versions write them, or with some of their tables alone."""

MAIN_LAYOUTS = ("torch-text", "torch-db", "mindspore-2.1", "mindstudio", "mindformers")
"""The layouts of whole profiles, drawn and compared in every way; others hold less, or vary."""

WITHOUT_TASKS = frozenset({"mindspore-tables"})
"""Layouts that hold tables and steps, and nothing that ran on the device."""

COMPARABLE = tuple(
    name for name in WRITERS if name not in {"raw-49-MHz", "kineto-announced", *WITHOUT_TASKS}
)
"""All with tasks whose times are whole nanoseconds, so that any two of them say the same."""


@dataclass(frozen=True)
class Profile:
    """A profile on disk, its captures in order of ranks, and the run it shows."""

    path: Path
    captures: tuple[Path, ...]
    run: Run = field(repr=False)
    """Not shown: Hypothesis warns of so long a text, which would hide what failed."""


Copier = Callable[..., Profile]
"""Copies the profile of a layout, which a test may change: see `ProfileShelf.copy`."""


class ProfileShelf:
    """Profiles of tiny runs, each written once per session; nobody may change them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: dict[tuple[object, ...], Profile] = {}
        self._states: dict[Path, dict[str, tuple[str, int]]] = {}

    def get(self, layout: str, **parameters: Any) -> Profile:
        """The profile of a run in a layout; parameters are those of `make_run`."""
        key = (layout, *sorted(parameters.items()))
        if key not in self._made:
            run = tiny_run(**parameters)
            path = self._root / f"{layout}-{len(self._made)}"
            path.mkdir()
            self._made[key] = Profile(
                path, tuple((WRITERS | VARIANTS | SPARSE_LAYOUTS)[layout](run, path)), run
            )
            self._states[path] = tree_state(path)
        return self._made[key]

    def changed(self) -> list[Path]:
        """The profiles that are no longer as they were written."""
        return [path for path, state in self._states.items() if tree_state(path) != state]

    def copy(self, layout: str, destination: Path, **parameters: Any) -> Profile:
        """A copy of a profile that a test may change."""
        found = self.get(layout, **parameters)
        shutil.copytree(found.path, destination)
        captures = (destination / capture.relative_to(found.path) for capture in found.captures)
        return Profile(destination, tuple(captures), found.run)


def tiny_run(**parameters: Any) -> Run:
    """A run of two ranks and three steps with a handful of tasks each."""
    return make_run(**{"ops_per_step": 6, "planes": 2, **parameters})


def change_json(path: Path, change: Callable[[Any], Any]) -> None:
    """Replace the document in a JSON file by what `change` makes of it."""
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(document)), encoding="utf-8")


def change_fields(path: Path, fields: Mapping[str, Any]) -> None:
    """Set fields of the object in a JSON file; None removes a field."""
    change_json(
        path,
        lambda document: {
            key: value for key, value in (document | fields).items() if value is not None
        },
    )


def change_events(path: Path, change: Callable[[Event], Event | None]) -> None:
    """Replace every event of a trace by what `change` makes of it; None removes the event."""
    change_json(
        path,
        lambda events: [made for event in events if (made := change(event)) is not None],
    )


def without_markers(shelf: ProfileShelf, destination: Path, **parameters: Any) -> Profile:
    """A profile without a step trace, as inference and older drivers leave it."""
    found = shelf.copy("mindstudio", destination, **parameters)
    for capture in found.captures:
        for path in capture.glob("mindstudio_profiler_output/step_trace_*"):
            path.unlink()
        for path in capture.glob("mindstudio_profiler_output/msprof_2*.json"):
            change_events(path, _without_marker)
    return found


def _without_marker(event: Event) -> Event | None:
    return None if int(event["tid"]) > 70_000 else event


def tree_state(root: Path) -> dict[str, tuple[str, int]]:
    """The content and change time of everything below a directory, by relative path."""
    return {
        str(path.relative_to(root)): (
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory",
            path.stat().st_mtime_ns,
        )
        for path in sorted([root, *root.rglob("*")])
    }
