"""Rendering of a template with its style sheet and script into one page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from timeline.printable import printable
from timeline.records.tables import Omission, rows_by_reason
from timeline.reports.export_report import ExportReport
from timeline.reports.html.drawing import Scale
from timeline.reports.html.palette import DARK, LIGHT, variables
from timeline.reports.html.svg import StyleSheet
from timeline.units import spell_bytes, spell_count
from timeline.version import __version__

MOST_WARNINGS = 100


@dataclass(frozen=True)
class Tile:
    """A number that says much, what it is, and what it consists of, if that is known."""

    value: str
    label: str
    detail: str = ""


def render_page(template: str, content: Mapping[str, object], sheet: StyleSheet) -> bytes:
    """A page as HTML, whose policy allows its own style and script alone."""
    templates = Environment(
        loader=PackageLoader("timeline.reports.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup(
        templates.get_template("page.css").render(
            light=list(variables(LIGHT)), dark=list(variables(DARK)), drawn=Markup(sheet.css())
        )
    )
    assert templates.loader is not None
    script = Markup(templates.loader.get_source(templates, "page.js")[0])
    text = templates.get_template(template).render(
        content,
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src {_hash(style)}; "
        f"script-src {_hash(script)}; base-uri 'none'; form-action 'none'",
        version=__version__,
        spell_bytes=spell_bytes,
        spell_count=spell_count,
        printable=printable,
    )
    return text.encode()


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def spell_four_digits(duration_ns: float) -> str:
    """A duration in four digits."""
    scale = Scale.of(round(abs(duration_ns)))
    return f"{duration_ns / scale.ns:#.4g} {scale.unit}"


def warnings_and_losses(
    warnings: Sequence[str], omissions: Sequence[Omission]
) -> dict[str, object]:
    """The warnings and omissions of a report, as the templates take them."""
    return {
        "warnings": [printable(warning) for warning in warnings[:MOST_WARNINGS]],
        "more_warnings": max(0, len(warnings) - MOST_WARNINGS),
        "left_out": [
            printable(f"{spell_count(count, 'record')}: {reason}")
            for reason, count in rows_by_reason(omissions).items()
        ],
    }


def page_title(report: ExportReport) -> str:
    """The end of the path below which all captures of the report lie."""
    sources = [rank.source.absolute() for rank in report.ranks]
    around = [{source, *source.parents} for source in sources]
    common = max(set.intersection(*around), key=lambda path: len(path.parts)) if around else Path()
    return printable("/".join(common.parts[-2:]))
