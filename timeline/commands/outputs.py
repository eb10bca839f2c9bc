"""Names of the files that commands write, and the checks that they may be written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from timeline.errors import OutputError, UsageError, spell_ids
from timeline.options import ExportOptions
from timeline.selection import Kind, Selection
from timeline.sources.source import Source

__all__ = ["check_can_draw", "check_target", "check_targets", "default_target"]


def default_target(kind: Kind, selection: Selection, sources: Sequence[Source]) -> Path:
    """The name of a timeline by what it shows, here."""
    ranks = [source.identity.rank for source in sources]
    name = f"timeline-{kind.value}-r{_short(ranks)}"
    if selection.graphs is not None:
        name += f"-g{_short(selection.graphs)}"
    if selection.steps is not None:
        name += f"-s{_short(selection.steps)}"
    return Path(f"{name}.pftrace")


def _short(ids: Iterable[int]) -> str:
    return spell_ids(ids, most=1_000_000, shortest_run=2)[:60]


def check_can_draw(options: ExportOptions) -> None:
    """Fail before anything is read where a page or picture could not be written.

    Raises:
        UsageError: the suffix is another, or what draws is not installed.
    """
    asked = [(options.report, (".html", ".htm")), (options.png, (".png",))]
    for target, suffixes in asked:
        if target is not None and target.suffix.lower() not in suffixes:
            raise UsageError(
                f"{target} has another suffix.", do=f"Name a file that ends in {suffixes[0]}."
            )
    if any(target is not None for target, _ in asked):
        try:
            import timeline.reports.html  # noqa: F401
        except ImportError as error:
            raise UsageError(
                "--report and --png need Jinja2 and matplotlib.",
                do="Install them: pip install 'tlexport[report]'.",
            ) from error


def check_targets(
    target: Path,
    options: ExportOptions,
    inputs: Mapping[Path, Sequence[Source]],
    *more: Path | None,
) -> None:
    """Make sure that all files that are asked for may be written.

    inputs: paths of profiles, with what is read of each. more: files besides those of the options.

    Raises:
        UsageError: two of them are one file.
        OutputError: one is there already, its directory is not, or it is part of a profile.
    """
    asked = (target, options.csv, options.report, options.png, *more)
    targets = [file for file in asked if file is not None]
    if len({file.resolve() for file in targets}) < len(targets):
        raise UsageError("two outputs have one name.", do="Give each a file of its own.")
    for file in targets:
        check_target(file, force=options.force)
        for path, sources in inputs.items():
            _check_not_input(file, path, sources)


def check_target(target: Path, *, force: bool) -> None:
    """Make sure that a file may be written.

    Raises:
        OutputError: it is there already, or its directory is not.
    """
    if target.is_dir():
        raise OutputError(f"{target} is a directory.", do="Name a file.")
    if target.exists() and not force:
        raise OutputError(
            f"{target} exists.", do="Pass --force to replace it, or -o to name another file."
        )
    if not target.parent.is_dir():
        raise OutputError(f"{target.parent} does not exist.", do="Make it first.")


def _check_not_input(target: Path, profile: Path, sources: Sequence[Source]) -> None:
    """Make sure that no input is changed, not even with --force.

    Raises:
        OutputError: the target is part of the profile.
    """
    if target.exists():
        for path in (profile, *(path for source in sources for path in source.files)):
            with contextlib.suppress(OSError):  # its reader will say so
                if path.samefile(target):
                    raise OutputError(f"{target} is part of the profile.", do="Name another file.")
