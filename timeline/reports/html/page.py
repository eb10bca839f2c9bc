"""A page of a report: one file of HTML whose script draws sections, charts and tables from JSON."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.columns.columns import Int64
from timeline.printable import printable, valid_text
from timeline.records.tables import Omission, rows_by_reason
from timeline.reports.report_rows import OutputFile, ResolutionRow
from timeline.reports.valid_json import json_of
from timeline.tables.short_names import shortened
from timeline.tables.table import Col, Spec, Table, View
from timeline.units import format_bytes, format_count
from timeline.version import __version__

Block = dict[str, Any]
"""A section, or a part of it, as `page.js` draws it: `is` says what it is."""

MOST_WARNINGS = 100
LONG = 80
"""Characters of a text in a table; a longer one is shortened, and whole under the pointer."""
SHORT = 16
"""Tables of at most so many rows are unfolded."""
_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))
_FINER = {"s": ("ms", 10**6), "ms": ("µs", 10**3), "µs": ("ns", 1)}
_LEAST = 10
"""A column is in a finer unit if its largest value has fewer than two digits."""
_PREFIXES = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3), ("", 1))


@dataclass(frozen=True)
class Tile:
    """A number that says much, what it is, and what it consists of, if that is known."""

    value: str
    label: str
    detail: str = ""


def render_page(
    kind: str,
    title: str,
    sentences: Iterable[str],
    blamed: str,
    notice: str,
    footer: str,
    tiles: Iterable[Tile],
    sections: Iterable[Block | None],
) -> bytes:
    """Return a page as HTML, whose policy allows its own style and script alone.

    blamed: how the first sentence begins if it blames a rank, else empty. notice: leads to what is
    missing, if anything is. tiles: the numbers above all. sections: those that are None are left
    out.
    """
    page = files("timeline.reports.html")
    parts = {name: page.joinpath(f"page.{name}").read_text("utf-8") for name in ("css", "js")}
    data = json_of([one for one in sections if one]).decode()
    lead, *more = map(html.escape, map(printable, sentences))
    if blamed:
        lead = f'<strong class="culprit">{blamed}</strong>{lead.removeprefix(blamed)}'
    items = "".join(f"<li>{sentence}</li>\n" for sentence in more)
    link = f'<p class="notice"><a href="#left-out">{notice}</a></p>'
    parts |= {
        "policy": f"default-src 'none'; img-src data:; style-src {_hash(parts['css'])}; "
        f"script-src {_hash(parts['js'])}; base-uri 'none'; form-action 'none'",
        "version": __version__,
        "title": html.escape(printable(title)),
        "kind": kind,
        "lead": lead,
        "more": f'<ul class="verdict">\n{items}</ul>' if items else "",
        "tiles": "\n".join(map(_tile_html, tiles)),
        "notice": link if notice else "",
        "footer": footer,
        "data": data.replace("<", "\\u003c"),
    }
    template = page.joinpath("page.html").read_text("utf-8")
    text = re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], template)
    return valid_text(text).encode()


def _tile_html(tile: Tile) -> str:
    value, label, detail = map(html.escape, (tile.value, tile.label, tile.detail))
    if not detail:
        return f"<div><dt>{label}</dt><dd>{value}</dd></div>"
    return f'<div class="more"><dt>{label}<br>{detail}</dt><dd>{value}</dd></div>'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# -- blocks ----------------------------------------------------------------------------------------


def section(title: str, *blocks: Block | None, anchor: str = "") -> Block | None:
    """Return a section of the blocks that are not None; None if all are."""
    shown = [block for block in blocks if block]
    if all(block["is"] == "note" for block in shown):
        return None
    return {"is": "section", "title": title, "anchor": anchor, "blocks": shown}


def note(text: str) -> Block | None:
    """Return a note; None if the text is empty."""
    return {"is": "note", "text": text} if text else None


def heading(text: str) -> Block:
    """Return a heading inside a section."""
    return {"is": "heading", "text": text}


def plain_list(items: Iterable[str | Sequence[str | Block]]) -> Block | None:
    """Return a list whose items are text, or pieces of text, code and links; None if it is empty.

    A piece is text, {"code": text} or {"link": address, "text": text}.
    """
    given = [item if isinstance(item, str) else list(item) for item in items]
    return {"is": "list", "items": given} if given else None


def folded(table: Block | None, *, opened: bool | None = None) -> Block | None:
    """Return a table that folds away; it is unfolded if `opened`, by default if it is short."""
    if table is None:
        return None
    return {**table, "fold": True, "opened": table["rows"] <= SHORT if opened is None else opened}


def folded_tables(tables: Iterable[Block | None]) -> list[Block | None]:
    """Return tables that fold away, the first of them unfolded."""
    given = [table for table in tables if table]
    return [folded(table, opened=not at) for at, table in enumerate(given)]


def notice_text(warnings: Sequence[str], omissions: Sequence[Omission]) -> str:
    """Return that there are warnings and omissions, empty if there are none."""
    warned = format_count(len(warnings), "warning") if warnings else ""
    return "; ".join(filter(None, [warned, "records were left out" if omissions else ""]))


def omissions_section(
    warnings: Sequence[str],
    omissions: Sequence[Omission],
    outputs: Sequence[OutputFile],
    resolutions: Sequence[ResolutionRow],
    *,
    first: Block | None = None,
    of_both: str = "",
    exact: str = "",
    last: Block | None = None,
) -> Block | None:
    """Return the section on sources, warnings, what was left out, and the timeline.

    of_both: follows the number of slices. exact: the command that shows what is merged.
    """
    told: list[str | Sequence[str | Block]] = [printable(text) for text in warnings[:MOST_WARNINGS]]
    if len(warnings) > MOST_WARNINGS:
        told.append(f"and {len(warnings) - MOST_WARNINGS} more")
    left_out = [
        printable(f"{format_count(count, 'record')}: {reason}")
        for reason, count in rows_by_reason(omissions).items()
    ]
    viewer = {"link": "https://ui.perfetto.dev", "text": "ui.perfetto.dev"}
    files: list[str | Sequence[str | Block]] = [
        (
            {"code": printable(str(output.path))},
            f"  {format_bytes(output.size_bytes)}, {format_count(output.slices, 'slice')}"
            f"{of_both}: drag it into ",
            viewer,
        )
        for output in outputs
    ]
    files += [row.spelled() for row in resolutions]
    files += [("Exact: ", {"code": printable(exact)})] if exact else []
    return section(
        "Sources and omissions",
        first,
        *((heading("Warnings"), plain_list(told)) if told else ()),
        *((heading("Left out"), plain_list(left_out)) if left_out else ()),
        *((heading("Timeline"), plain_list(files)) if outputs else ()),
        last,
        anchor="left-out",
    )


# -- tables ----------------------------------------------------------------------------------------


def page_table(
    name: str, caption: str, columns: Iterable[Block | None], note: str = ""
) -> Block | None:
    """Return a table of the columns that are not None; None without columns or rows.

    note: what is to be said of it.
    """
    given = [column for column in columns if column]
    rows = len(given[0]["values"]) if given else 0
    if not rows:
        return None
    return {
        "is": "table",
        "name": name,
        "caption": caption,
        "columns": given,
        "note": note,
        "rows": rows,
    }


def text_column(title: str, values: npt.NDArray[Any] | Sequence[Any]) -> Block | None:
    """Return a column of text; None if all of it is empty."""
    whole = [
        printable("" if value is None else str(value))
        for value in np.asarray(values, object).tolist()
    ]
    if not any(whole):
        return None
    short = shortened(whole, LONG)
    cut = {
        str(at): text
        for at, (text, shown) in enumerate(zip(whole, short, strict=True))
        if text != shown
    }
    return {"title": title, "kind": "text", "values": short, "whole": cut}


def number_column(
    title: str,
    values: npt.NDArray[Any] | Sequence[Any],
    *,
    scale: float = 1,
    digits: int = 0,
    **more: Any,
) -> Block | None:
    """Return a column of numbers, which are sorted by the values; None if no value is given.

    scale: what a shown number counts. digits: behind the point. more: `most`, the value of a full
    bar; `signed`, for a plus before what is more than 0; `change`, for bars to either side.
    """
    given = np.ma.asanyarray(values).tolist() if isinstance(values, np.ndarray) else list(values)
    if all(value is None for value in given):
        return None
    return {"title": title, "values": given, "scale": scale, "digits": digits, **more}


def time_column(
    title: str, values_ns: npt.NDArray[Any], *, like_ns: int = 0, bars: bool = False
) -> Block | None:
    """Return a column of times, all in one unit; None if none is given.

    like_ns: the time whose unit they take, if it is not the largest of them.
    """
    largest_ns = max((value for value in values_ns.tolist() if value is not None), default=0)
    unit, scale = column_unit(like_ns or largest_ns)
    more = {"most": largest_ns} if bars and largest_ns else {}
    return number_column(
        f"{title} ({unit})", values_ns, scale=scale, digits=0 if scale == 1 else 3, **more
    )


def unit_of(largest_ns: int) -> tuple[str, int]:
    """Return the largest unit of time of which there is at least one, and its ns."""
    return next(one for one in _UNITS if largest_ns >= one[1] or one[1] == 1)


def column_unit(largest_ns: int) -> tuple[str, int]:
    """Return the unit of a column of times, and its ns."""
    unit, scale = unit_of(largest_ns)
    return _FINER.get(unit, (unit, scale)) if largest_ns < _LEAST * scale else (unit, scale)


def columns_of_runs(base_ns: Int64, new_ns: Int64) -> list[Block | None]:
    """Return times of two runs, in one unit and with bars of one scale, and how they changed.

    Those that a run does not record are masked.
    """
    delta_ns = new_ns - base_ns
    base, new, delta = (np.ma.filled(column, 0) for column in (base_ns, new_ns, delta_ns))
    largest_ns = int(max(base.max(initial=0), new.max(initial=0)))
    unit, scale = column_unit(largest_ns)
    digits = 0 if scale == 1 else 3
    bars = {"scale": scale, "digits": digits, "most": max(1, largest_ns)}
    furthest_ns = max(1, int(np.abs(delta).max(initial=0)))
    changes = {**bars, "most": furthest_ns, "signed": True, "change": True}
    shares = [
        0
        if not change
        else "new"
        if not old
        else "gone"
        if change == -old
        else round(change / old, 6)
        for change, old in zip(delta.tolist(), base.tolist(), strict=True)
    ]
    return [
        {"title": f"Before ({unit})", "values": base_ns.tolist(), **bars},
        {"title": f"Now ({unit})", "values": new_ns.tolist(), **bars},
        {"title": f"Change ({unit})", "values": delta_ns.tolist(), **changes},
        {"title": "Change", "kind": "relative", "values": shares},
    ]


def size_column(
    title: str, values_bytes: npt.NDArray[Any], *, signed: bool = False
) -> Block | None:
    """Return a column of sizes in MB; None if all are 0 or masked.

    signed: they are changes, of which those that are more have a plus.
    """
    if not any(values_bytes.tolist()):
        return None
    return number_column(f"{title} (MB)", values_bytes, scale=1e6, digits=1, signed=signed)


def rate_column(title: str, values: npt.NDArray[Any]) -> Block | None:
    """Return a column of bandwidths in GB/s; None if none is given."""
    return number_column(f"{title} (GB/s)", _rounded(values, 4), digits=2)


def scaled_column(title: str, values: npt.NDArray[Any], unit: str) -> Block | None:
    """Return amounts of a unit with the prefix that suits the largest; None if none is given."""
    largest = max((value for value in values.tolist() if value is not None), default=0)
    prefix, scale = _prefix_of(largest)
    return number_column(
        f"{title} ({prefix}{unit})", values, scale=scale, digits=3 if prefix else 0
    )


def share_column(
    title: str, parts: npt.NDArray[Any], of: npt.NDArray[Any] | int = 1
) -> Block | None:
    """Return a column of shares, each with a bar; None if none is given."""
    shares = parts / np.maximum(of, 1)
    column = number_column(title, _rounded(shares, 6))
    return column and {"title": title, "kind": "share", "values": column["values"]}


def columns_of(
    rows: Table,
    *names: str,
    of: Spec | None = None,
    bars: Collection[str] = (),
    like_ns: int = 0,
    titles: Mapping[str, str] = MappingProxyType({}),
) -> list[Block | None]:
    """Return columns of a table, each formatted as its name and values ask, None if empty.

    Times end in _ns, sizes in _bytes, bandwidths in _gb_s; other real numbers are shares.

    of: the declaration that heads them. bars: those with a bar in each cell. like_ns: as for
    `time_column`. titles: headings that differ, by name.
    """
    declared = {one.name: one for one in (of.columns if of else ())}
    shown = list[Block | None]()
    for name in names:
        column, values = declared.get(name, Col(name)), rows[name]
        title = titles.get(name, column.heading)
        if name.endswith("_ns"):
            shown.append(time_column(title, values, like_ns=like_ns, bars=name in bars))
        elif name.endswith("_bytes"):
            shown.append(size_column(title, values))
        elif name.endswith("_gb_s"):
            shown.append(rate_column(title, values))
        elif column.unit:
            shown.append(scaled_column(title, values, column.unit))
        elif values.dtype.kind == "f":
            shown.append(share_column(title, values))
        else:
            make = text_column if values.dtype == object else number_column
            shown.append(make(title, values))
    return shown


def view_of(
    spec: Spec, view: View, rows: Table, *, caption: str = "", note: str = ""
) -> Block | None:
    """Return a table as its view says; None without rows.

    caption: instead of that of the view. note: what is to be said of it.
    """
    if not len(rows):
        return None
    if view.where is not None:
        rows = rows.take(np.flatnonzero(rows[view.where[0]] == view.where[1]))
    if view.order:
        rows = rows.take(np.argsort(-np.ma.filled(rows[view.order], 0), kind="stable"))
    shown, left = first_rows(rows, view.most, view.noun)
    columns = columns_of(shown, *view.columns, of=spec, bars=view.bars, titles=view.titles)
    return page_table(view.anchor, caption or view.caption, columns, f"{note} {left}".strip())


def sorted_texts(title: str, texts: Iterable[str], values: Iterable[float | None]) -> Block:
    """Return a column of texts that are sorted by numbers; an empty text is shown as a dash."""
    return {"title": title, "kind": "labels", "values": list(values), "texts": list(texts)}


def format_rank(number: int | None, profiled: object) -> str:
    """Format a rank that need not be in the profile, or be known."""
    if number is None:
        return "another rank"
    return f"rank {number}" if profiled else f"rank {number} (not read)"


def format_amount(value: int, unit: str) -> str:
    """Format an amount in four digits, with the prefix that suits it."""
    prefix, scale = _prefix_of(value)
    return f"{value / scale:#.4g} {prefix}{unit}" if prefix else f"{value} {unit}"


def _prefix_of(largest: float) -> tuple[str, int]:
    return next((one for one in _PREFIXES if largest >= one[1]), _PREFIXES[-1])


def _rounded(values: npt.NDArray[Any], digits: int) -> list[float | None]:
    return [None if value is None else round(value, digits) for value in values.tolist()]


def left_out(count: int, noun: str, but: str = "") -> str:
    """Format how many more rows there are in the JSON report, empty if there are none.

    but: what they are besides, such as ", all faster,".
    """
    return (
        f"{format_count(count, f'more {noun}')}{but} in the JSON report (--json)." if count else ""
    )


def first_rows(rows: Table, most: int, noun: str = "row") -> tuple[Table, str]:
    """Return the first rows, and a note on how many more there are."""
    shown = rows.take(slice(most))
    return shown, left_out(len(rows) - len(shown), noun)
