"""The ways of using a profile whose time must grow no faster than the profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.grown_records import Shape, grown_profile
from timeline import compare, export
from timeline.commands.verdict import find_verdict
from timeline.layers import Layer
from timeline.selection import DETAIL_LAYERS

Way = Callable[[Shape, Path], None]
LIMIT = "200KB"


def _detail(shape: Shape, directory: Path, suffix: str = ".pftrace", **options: Any) -> None:
    """The detail of a profile, with scopes and all args."""
    layers = DETAIL_LAYERS | {Layer.SCOPES}
    with grown_profile(shape) as profile:
        export(
            profile,
            directory / f"detail{suffix}",
            kind="detail",
            layers=layers,
            **{"limit": 0, "args": "all", "force": True, **options},
        )


def _report(shape: Shape, directory: Path) -> None:
    """The summary, and every report there is."""
    with grown_profile(shape) as profile:
        report = export(
            profile,
            directory / "summary.pftrace",
            report=directory / "page.html",
            csv=directory / "steps.csv",
        )
        report.to_json()


def _verdict(shape: Shape, directory: Path) -> None:
    """What is slow."""
    with grown_profile(shape) as profile:
        str(find_verdict(profile))


def _compare(shape: Shape, directory: Path) -> None:
    """A comparison with itself, and every report of it."""
    with grown_profile(shape) as base, grown_profile(shape) as new:
        compare(
            base,
            new,
            directory / "compare.pftrace",
            report=directory / "compare.html",
            csv=directory / "compare.csv",
            markdown=directory / "compare.md",
        )


def _library(shape: Shape, directory: Path) -> None:
    """Every table of the library."""
    with grown_profile(shape) as profile:
        profile.overlap()
        profile.steps()
        profile.idle()
        profile.critical_path()
        profile.collectives()
        profile.waiting()
        profile.links()
        profile.operators()
        profile.operator_steps()
        profile.framework()
        profile.tasks()
        profile.host_calls()
        profile.memory()
        profile.advice()


WAYS: Mapping[str, Way] = {
    "detail": _detail,
    "limit": partial(_detail, limit=LIMIT, args="default"),
    "steps": partial(_detail, limit=LIMIT, args="default", fit="steps"),
    "split": partial(_detail, limit=LIMIT, args="default", fit="split"),
    "JSON": partial(_detail, suffix=".json"),
    "by layer": partial(_detail, group_by="layer", merge_graphs=False),
    "report": _report,
    "verdict": _verdict,
    "compare": _compare,
    "library": _library,
}
