"""The files that commands write: their default names, and checks before writing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from timeline.encoders.attributes import is_ours
from timeline.encoders.formats import format_of
from timeline.errors import OutputError, UsageError, format_ids
from timeline.fitting.fit_without_merging import existing_parts
from timeline.options import ExportOptions
from timeline.selection import Kind, Selection
from timeline.sources.source import Source


@dataclass(frozen=True)
class Target:
    """The file of a timeline, and which existing files it may replace.

    has_default_name: the name was not chosen by the user, so an earlier timeline of tlexport under
    this name may be replaced. force: any existing file may be replaced.
    """

    path: Path
    has_default_name: bool
    force: bool

    @classmethod
    def of(cls, options: ExportOptions, default_name: Path) -> Target:
        """Return the target that options name, or else that of the default name."""
        return cls(options.output or default_name, options.output is None, options.force)

    def check(self, path: Path) -> None:
        """Check that the timeline, or a part of it, may be written to `path`.

        Raises:
            OutputError: an existing file must stay, or the directory does not exist.
        """
        _check_file(path, may_replace=self.force or (self.has_default_name and is_ours(path)))

    def stale_parts(self, written: Sequence[Path]) -> list[Path]:
        """Return the parts of an earlier timeline of this name that no new part replaces."""
        if not self.has_default_name:
            return []
        parts = existing_parts(self.path, format_of(self.path))
        return [part for part in parts if part not in written and is_ours(part)]


def check_can_draw(options: ExportOptions) -> None:
    """Check, before anything is read, that the name of the page ends in .html or .htm.

    Raises:
        UsageError: it does not.
    """
    page = options.report
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--report needs a name ending in .html, which {page} does not.")


def check_targets(
    target: Target,
    options: ExportOptions,
    inputs: Mapping[Path, Sequence[Source]],
    *more: Path | None,
) -> None:
    """Check that all requested files may be written.

    inputs: the sources of each profile by path. more: files besides those of the options.

    Raises:
        UsageError: two outputs are the same file.
        OutputError: a file exists, its directory does not exist, or it is part of a profile.
    """
    side_files = [file for file in (options.csv, options.report, *more) if file is not None]
    if len({file.resolve() for file in (target.path, *side_files)}) <= len(side_files):
        raise UsageError("two outputs have one name.", do="Give each a file of its own.")
    target.check(target.path)
    for file in side_files:
        _check_file(file, may_replace=options.force)
    for file in (target.path, *side_files):
        for path, sources in inputs.items():
            _check_not_input(file, path, sources)


def _check_file(file: Path, *, may_replace: bool) -> None:
    if file.is_dir():
        raise OutputError(f"{file} is a directory.", do="Name a file.")
    if file.is_symlink():
        raise OutputError(
            f"{file} is a symbolic link to {file.readlink()}, which is not replaced.",
            do="Name that file itself, or another one.",
        )
    if file.exists() and not file.is_file():
        raise OutputError(f"{file} is a pipe or device.", do="Name a file.")
    if file.exists() and not may_replace:
        raise OutputError(f"{file} exists.", do="Pass --force to replace it, or name another file.")
    if not file.parent.is_dir():
        raise OutputError(f"{file.parent} does not exist.", do="Make it first.")


def _check_not_input(target: Path, profile: Path, sources: Sequence[Source]) -> None:
    """Check that no file of a profile would be replaced, used or not, even with --force.

    Timelines that tlexport wrote into a capture may be replaced.

    Raises:
        OutputError: the target is part of the profile.
    """
    if not target.exists() or is_ours(target):
        return
    captures = {source.identity.directory.resolve() for source in sources}
    files = (profile, *(path for source in sources for path in source.files))
    if captures & set(target.resolve().parents) or any(_is_file(path, target) for path in files):
        raise OutputError(
            f"{target} is part of the profile, whose files are never replaced.",
            do="Name a file elsewhere.",
        )


def _is_file(path: Path, target: Path) -> bool:
    try:
        return path.samefile(target)
    except OSError:  # its reader reports that
        return False


_SUFFIX = ".pftrace"
_MOST_OF_PROFILE = 40
_MOST_OF_IDS = 60
"""Maximum number of characters in a name: file systems allow 255 bytes, suffixes included."""
_ARCHIVE = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2|txz|zip)$", re.IGNORECASE)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


def timeline_name(
    profile: Path, kind: Kind, selection: Selection, sources: Sequence[Source]
) -> Path:
    """Return the default name of a timeline: `timeline-PROFILE-KIND-rRANKS[-gG][-sS].pftrace`."""
    ranks = [source.identity.rank for source in sources]
    name = f"timeline-{_safe_name(profile)}-{kind.value}-r{_short(ranks)}"
    return Path(name + _selected(selection) + _SUFFIX)


def comparison_name(runs: Sequence[Path], kind: Kind, sides: Sequence[Selection]) -> Path:
    """Return the default name of a comparison: `compare-BASE-NEW-KIND[-rR][-gG][-sS].pftrace`.

    Of two parts of one run, it is such as `compare-RUN-KIND-s7-vs-3.pftrace`.
    """
    name = "-".join(["compare", *map(_safe_name, runs), kind.value])
    return Path(name + _ids("r", *(one.ranks for one in sides)) + _selected(*sides) + _SUFFIX)


def _selected(*sides: Selection) -> str:
    return _ids("g", *(one.graphs for one in sides)) + _ids("s", *(one.steps for one in sides))


def _ids(letter: str, *sides: Iterable[int] | None) -> str:
    """Return the ids that each side selects, once where both select the same."""
    names = [*dict.fromkeys("all" if ids is None else _short(ids) for ids in sides)]
    if names == ["all"]:
        return ""
    return f"-{letter}" + "-vs-".join(name[: _MOST_OF_IDS // len(names)] for name in names)


def _safe_name(profile: Path) -> str:
    """Return the last part of a path, with only letters, digits, dots, dashes and underscores.

    Leading dashes and dots are dropped: such names would be taken for options, or hidden.
    """
    path = profile.resolve()
    name = _ARCHIVE.sub("", path.name) if path.is_file() else path.name
    safe = _UNSAFE.sub("-", name).strip("-.")
    return safe[:_MOST_OF_PROFILE].rstrip("-.") or "profile"


def _short(ids: Iterable[int]) -> str:
    return format_ids(ids, most=1_000_000, shortest_run=2)[:_MOST_OF_IDS]
