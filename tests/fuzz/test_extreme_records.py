"""Proves that records of extremes break none of the promises of exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.oracles import LoadedExport, check_export, check_limited, check_sums, load, written
from tests.fuzz.promises import BrokenPromise
from tests.support.extreme_records import ExtremeSource, extreme_sources
from tests.support.limited_exports import SUFFIXES
from tests.support.other_readings import without_compiled
from timeline.analysis.sound_records import drop_invalid_rows
from timeline.commands.export import export
from timeline.errors import TimelineError
from timeline.options import ReadingOptions
from timeline.profile import Profile
from timeline.progress import Silent
from timeline.ranges import LARGEST_ID
from timeline.reports.export_report import ExportReport
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import Discovered
from timeline.sources.source import ReadRequest

SELECTIONS: tuple[Mapping[str, str], ...] = (
    *({} for _ in range(6)),
    *({"window": window} for window in ("20%:70%", "0ns:1us", "1ns:9000000000s")),
    *({"steps": steps} for steps in ("1", "0-3", "1-2", str(LARGEST_ID))),
)
OPTIONS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from(("detail", "detail", "summary")),
        "args": st.sampled_from(("all", "default", "none")),
        "group_by": st.sampled_from(("rank", "layer")),
        "merge_graphs": st.booleans(),
        "scopes": st.booleans(),
        "causes": st.booleans(),
    }
)
_EVERYTHING = ReadRequest(DETAIL_LAYERS)


def export_records(
    sources: Sequence[ExtremeSource], target: Path, options: Mapping[str, Any]
) -> ExportReport:
    """Export ranks of made records as a profile that was found."""
    found = Discovered(tuple(sources), ())
    with Profile(target.parent, found, ReadingOptions(jobs=1), Silent(), ExitStack()) as profile:
        report = export(profile, target, force=True, **options)
    report.to_json()
    for line in report.lines():
        line.encode()
    return report


def checked(report: ExportReport, options: Mapping[str, Any]) -> LoadedExport:
    """Load an export and check what holds of any."""
    made = load(report)
    check_export(made, selects=bool({"steps", "window"} & options.keys()))
    return made


def sums_of(sources: Sequence[ExtremeSource]) -> dict[str, list[int]]:
    """Return how many valid rows each layer has, and how long they are together."""
    wanted: dict[str, list[int]] = {}
    for source in sources:
        records = drop_invalid_rows(source.read(_EVERYTHING))
        for layer, table in (
            ("task", records.tasks),
            ("hccl_task", records.planes),
            ("communication_op", records.ops),
        ):
            sums = wanted.setdefault(layer, [0, 0])
            sums[0] += len(table)
            sums[1] += sum(table.end_ns.tolist()) - sum(table.start_ns.tolist())
    return wanted


@given(
    sources=extreme_sources(),
    suffix=st.sampled_from(SUFFIXES),
    options=OPTIONS,
    selection=st.sampled_from(SELECTIONS),
    share=st.floats(0.1, 1.1),
    limited=st.sampled_from(("limit", "max_events")),
    fit=st.sampled_from(("coarsen", "coarsen", "steps", "split", "error")),
)
@settings(max_examples=max(1, settings().max_examples // 2))
def test_any_records_are_refused_or_drawn_as_promised(
    tmp_path_factory: pytest.TempPathFactory,
    sources: tuple[ExtremeSource, ...],
    suffix: str,
    options: dict[str, Any],
    selection: Mapping[str, str],
    share: float,
    limited: str,
    fit: str,
) -> None:
    """In full, in the same bytes without what is compiled, and within any limit."""
    directory = tmp_path_factory.mktemp("records")
    options = {**options, **selection, "limit": 0}
    try:
        whole = export_records(sources, directory / f"whole{suffix}", options)
        drawn, exact = written(whole), checked(whole, options)
        if options["kind"] == "detail" and not selection:
            check_sums(exact.totals, sums_of(sources))
        with without_compiled():
            plain = export_records(sources, directory / f"whole{suffix}", options)
        if written(plain) != drawn:
            raise BrokenPromise("without what is compiled the bytes are others")
        if not whole.outputs:
            return
        (output,) = whole.outputs
        size = output.elements if limited == "max_events" else output.size_bytes
        options |= {limited: max(1, int(size * share)), "fit": fit}
        part = export_records(sources, directory / f"part{suffix}", options)
        made = checked(part, options)
        if fit == "coarsen" and part.limited_by is not None:
            check_limited(made, exact)
    except TimelineError:
        return
