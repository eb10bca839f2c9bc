"""Turns the report of an export into one page that needs nothing beside itself."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from timeline.printable import printable
from timeline.records.tables import Omission
from timeline.report import ExportReport
from timeline.report_page import listings, pictures
from timeline.report_page.drawing import MOST_PLACES, Scale
from timeline.report_page.grid import StepGrid, in_runs, with_parts
from timeline.report_page.heading import title_of
from timeline.report_page.palette import DARK, LIGHT, PARTS, variables
from timeline.report_page.step_pictures import step_pictures
from timeline.report_page.svg import StyleSheet
from timeline.units import spell_bytes, spell_count
from timeline.verdict import total_by_type
from timeline.version import __version__

__all__ = ["page"]

MOST_WARNINGS = 100


@dataclass(frozen=True)
class Tile:
    """A number that says much, and what it is."""

    value: str
    label: str


def page(report: ExportReport) -> bytes:
    """The report as HTML: a few hundred kB, whatever the number of ranks and steps."""
    templates = Environment(
        loader=PackageLoader("timeline.report_page", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sheet = StyleSheet()
    content = {
        "title": title_of(report),
        "sentences": list(report.verdict.sentences()),
        "tiles": list(_tiles(report)),
        "report": report,
        "warnings": [printable(own) for own in report.warnings[:MOST_WARNINGS]],
        "more_warnings": max(0, len(report.warnings) - MOST_WARNINGS),
        "left_out": list(_left_out(report.omissions)),
        "parts": PARTS,
        "version": __version__,
        **_pictured(report, sheet),
        **_listed(report),
    }
    style = Markup(
        templates.get_template("page.css").render(
            light=list(variables(LIGHT)), dark=list(variables(DARK)), drawn=Markup(sheet.css())
        )
    )
    script = Markup(_source(templates, "page.js"))
    text = templates.get_template("page.html").render(
        content,
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'",
        spell_bytes=spell_bytes,
        spell_count=spell_count,
        printable=printable,
    )
    return text.encode()


def _source(templates: Environment, name: str) -> str:
    assert templates.loader is not None
    return templates.loader.get_source(templates, name)[0]


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _tiles(report: ExportReport) -> Iterator[Tile]:
    ranks = report.verdict.ranks
    yield Tile(str(len(report.ranks)), "rank" if len(report.ranks) == 1 else "ranks")
    if report.steps:
        yield Tile(str(len(report.steps)), "step" if len(report.steps) == 1 else "steps")
    means_ns = np.ma.compressed(ranks["step_ns"]) if len(ranks) else np.zeros(0)
    if len(means_ns):
        yield Tile(_short(float(means_ns.mean())), "mean step")
    span_ns = int(ranks["span_ns"].sum()) if len(ranks) else 0
    if span_ns:
        for column, label in (
            ("computing_ns", "computing"),
            ("not_overlapped_ns", "communication not overlapped"),
            ("free_ns", "free"),
        ):
            yield Tile(f"{int(ranks[column].sum()) / span_ns:.0%}", label)


def _short(duration_ns: float) -> str:
    """A duration in four digits."""
    scale = Scale.of(round(duration_ns))
    return f"{duration_ns / scale.ns:#.4g} {scale.unit}"


def _pictured(report: ExportReport, sheet: StyleSheet) -> dict[str, object]:
    """All pictures; None where there is nothing to draw."""
    ranks, extreme = report.verdict.ranks, report.verdict.rank_extreme
    used = ranks.take(ranks["span_ns"] > 0) if len(ranks) else ranks
    slowest = None if extreme is None else extreme.slowest
    return {
        "bars": pictures.bars(with_parts(used), sheet) if len(used) else None,
        "bars_run": in_runs(len(used), MOST_PLACES),
        "heat_run": in_runs(len(ranks), MOST_PLACES),
        "rank_is_slowest": slowest is not None,
        "steps": step_pictures(StepGrid.of(report.figures), slowest, sheet),
    }


def _listed(report: ExportReport) -> dict[str, object]:
    totals = [total_by_type(report.figures.operators, by_name=by_name) for by_name in (False, True)]
    return {
        "ranks_table": listings.ranks(report),
        "steps_table": listings.steps(report, graphs=StepGrid.of(report.figures).several_graphs),
        "operator_tables": list(listings.operators(totals, communication=False)),
        "collective_tables": list(listings.operators(totals, communication=True)),
        "longest_table": listings.longest_ops(report),
        "sources_table": listings.sources(report),
    }


def _left_out(omissions: tuple[Omission, ...]) -> Iterator[str]:
    """What is left out, by reason, over all ranks."""
    rows: dict[str, int] = {}
    for own in omissions:
        rows[own.reason] = rows.get(own.reason, 0) + own.rows
    for reason, count in rows.items():
        yield printable(f"{spell_count(count, 'record')}: {reason}")
