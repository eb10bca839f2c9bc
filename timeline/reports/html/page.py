"""HTML pages of reports, and the JSON blocks that their script draws as sections and tables."""

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
from timeline.language import said, said_parts, spoken_language
from timeline.printable import command_line, printable, valid_text
from timeline.records.tables import Omission, rows_by_reason
from timeline.reports.report_rows import OutputFile, ResolutionRow
from timeline.reports.valid_json import json_of
from timeline.tables.short_names import shortened
from timeline.tables.table import Col, Kind, Spec, Table, View
from timeline.tracks.colours import Colour
from timeline.units import format_bytes, format_count
from timeline.version import __version__

Block = dict[str, Any]
"""A section, or a part of one, as `page.js` draws it; the key `is` holds its kind."""

MOST_WARNINGS = 100
LONG = 80
"""Maximum length of a string in a table; a longer one is shortened, and longer in its tooltip."""
LONGEST = 500
"""Maximum length of a string in a tooltip; most names of kernels are shorter."""
SHORT = 16
"""Maximum number of rows of tables that are unfolded at first."""
_UNITS = (("s", 10**9), ("ms", 10**6), ("µs", 10**3), ("ns", 1))
_FINER = {"s": ("ms", 10**6), "ms": ("µs", 10**3), "µs": ("ns", 1)}
_LEAST = 10
"""Minimum of the largest value in a column; below, the column has a finer unit."""
_PREFIXES = (("P", 10**15), ("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3), ("", 1))


@dataclass(frozen=True)
class Tile:
    """A prominent number of a page, its label, and its parts if they are known."""

    value: str
    label: str
    detail: str = ""


TEXTS = frozenset(
    {"title", "text", "caption", "note", "label", "noun", "says", "own", "why", "items"}
)
"""Keys of blocks whose strings are texts of the program; others may be names."""
NO_SCRIPT = "A script draws the charts and tables of this page, and is not allowed to."
_STRING = re.compile(r"(['`])(?:(?!\1).)*\1")
"""A string of the script."""
_COLON = re.compile("(?<=：)|(?<=:) ")
MOST_WITHOUT_INDEX = 4
"""A page with fewer sections has no index."""


def render_page(
    kind: str,
    title: str,
    sentences: Iterable[str],
    blamed: str,
    notice: str,
    footer: str,
    tiles: Iterable[Tile],
    sections: Iterable[Block | None],
    commands: Iterable[str] = (),
) -> bytes:
    """Return a page as HTML, with a security policy that allows only its own style and script.

    blamed: start of the first sentence that names the rank to blame, empty for none. notice: text
    of the link to the section on missing records, empty for none. tiles: prominent numbers at the
    top. sections: None for sections to leave out. commands: lines with the next commands to run,
    each after a colon.
    """
    page = files("timeline.reports.html")
    parts = {name: page.joinpath(f"page.{name}").read_text("utf-8") for name in ("css", "js")}
    palette = {colour.name: colour.shown for colour in Colour}
    parts["css"] = re.sub(r"\{\{(\w+)\}\}", lambda name: palette[name[1]], parts["css"])
    parts["js"] = _STRING.sub(_said_string, parts["js"])
    shown = [said_parts(one, TEXTS) for one in sections if one]
    data = json_of(shown).decode()
    lead, *more = map(html.escape, map(printable, map(said, sentences)))
    if blamed:
        blamed = said(blamed)
        lead = lead.replace(blamed, f'<strong class="culprit">{blamed}</strong>', 1)
    items = "".join(f"<li>{sentence}</li>\n" for sentence in more)
    link = f'<p class="notice"><a href="#left-out">{said(notice)}</a></p>'
    parts |= {
        "policy": f"default-src 'none'; img-src data:; style-src {_hash(parts['css'])}; "
        f"script-src {_hash(parts['js'])}; base-uri 'none'; form-action 'none'",
        "version": __version__,
        "title": html.escape(printable(title)),
        "kind": said(kind),
        "lang": spoken_language(),
        "noscript": said(NO_SCRIPT),
        "lead": lead,
        "more": f'<ul class="verdict">\n{items}</ul>' if items else "",
        "next": "\n".join(map(_command_html, commands)),
        "index": _index_html(shown),
        "tiles": "\n".join(map(_tile_html, tiles)),
        "notice": link if notice else "",
        "footer": said(footer),
        "data": data.replace("<", "\\u003c"),
    }
    template = page.joinpath("page.html").read_text("utf-8")
    text = re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], template)
    return valid_text(text).encode()


def _said_string(text: re.Match[str]) -> str:
    """Return a string of the script in the spoken language; a name of the page stays."""
    quote = text[1]
    if text[0][1:-1].islower() and text[0][1:-1].isalpha():
        return text[0]
    return f"{quote}{said(text[0][1:-1], 'page')}{quote}"


def _command_html(line: str) -> str:
    what, command = map(html.escape, _COLON.split(printable(said(line)), 1))
    return f'<p class="next">{what} <code>{command.strip()}</code></p>'


def _index_html(sections: Sequence[Block]) -> str:
    """Return links to the sections, empty if there are few."""
    if len(sections) < MOST_WITHOUT_INDEX:
        return ""
    links = (
        f'<a href="#{section["anchor"]}">{html.escape(section["title"])}</a>'
        for section in sections
    )
    return f'<nav aria-label="{said("Sections")}">{" ".join(links)}</nav>'


def _tile_html(tile: Tile) -> str:
    label, detail = map(said, (tile.label, tile.detail))
    value, label, detail = map(html.escape, (tile.value, label, detail))
    if not detail:
        return f"<div><dt>{label}</dt><dd>{value}</dd></div>"
    return f'<div class="more"><dt>{label}<br>{detail}</dt><dd>{value}</dd></div>'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


# -- blocks ----------------------------------------------------------------------------------------


def section(title: str, *blocks: Block | None, anchor: str = "") -> Block | None:
    """Return a section of the blocks that are not None; None if nothing but notes would be left."""
    shown = [block for block in blocks if block]
    if all(block["is"] == "note" for block in shown):
        return None
    anchor = anchor or "-".join(title.lower().split())
    return {"is": "section", "title": title, "anchor": anchor, "blocks": shown}


def note(text: str) -> Block | None:
    """Return a note; None if the text is empty."""
    return {"is": "note", "text": text} if text else None


def heading(text: str) -> Block:
    """Return a heading inside a section."""
    return {"is": "heading", "text": text}


def plain_list(items: Iterable[str | Sequence[str | Block]]) -> Block | None:
    """Return a list whose items are strings, or sequences of strings, code and links.

    Code is {"code": text}, a link {"link": address, "text": text}. Without items, return None.
    """
    contents = [item if isinstance(item, str) else list(item) for item in items]
    return {"is": "list", "items": contents} if contents else None


def folded(table: Block | None, *, opened: bool | None = None) -> Block | None:
    """Return a table that can be folded; at first it is unfolded if `opened`, or if it is short."""
    if table is None:
        return None
    return {**table, "fold": True, "opened": table["rows"] <= SHORT if opened is None else opened}


def folded_tables(tables: Iterable[Block | None]) -> list[Block | None]:
    """Return tables that can be folded, the first of them unfolded."""
    shown = [table for table in tables if table]
    return [folded(table, opened=not at) for at, table in enumerate(shown)]


def notice_text(warnings: Sequence[str], omissions: Sequence[Omission]) -> str:
    """Return a notice that there are warnings and lost records, empty if there are none.

    Records that only repeat others are no loss.
    """
    is_lost = any(one.loss for one in omissions)
    count = format_count(len(warnings), "warning") if warnings else ""
    return "; ".join(filter(None, [count, "records were left out" if is_lost else ""]))


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
    """Return the section on sources, warnings, omitted records, and the timeline.

    first, last: further blocks at the start and the end. of_both: text after the number of slices.
    exact: the command that exports without merging, empty for none.
    """
    lines: list[str | Sequence[str | Block]] = [printable(one) for one in warnings[:MOST_WARNINGS]]
    if len(warnings) > MOST_WARNINGS:
        lines.append(f"and {len(warnings) - MOST_WARNINGS} more")
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
    files += [row.describe() for row in resolutions]
    files += [("Exact: ", {"code": printable(exact)})] if exact else []
    return section(
        "Sources and omissions",
        first,
        *((heading("Warnings"), plain_list(lines)) if lines else ()),
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

    note: text below the table.
    """
    shown = [column for column in columns if column]
    rows = len(shown[0]["values"]) if shown else 0
    if not rows:
        return None
    return {
        "is": "table",
        "name": name,
        "caption": caption,
        "columns": shown,
        "note": note,
        "rows": rows,
    }


def text_column(title: str, values: npt.NDArray[Any] | Sequence[Any]) -> Block | None:
    """Return a column of strings, shortened for display; None if all are empty."""
    whole = [
        printable("" if value is None else str(value))
        for value in np.asarray(values, object).tolist()
    ]
    if not any(whole):
        return None
    longer, short = shortened(whole, LONGEST), shortened(whole, LONG)
    cut = {
        str(at): text
        for at, (text, shown) in enumerate(zip(longer, short, strict=True))
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
    """Return a column of numbers; None if no value is given.

    scale: divisor of the values for display. digits: after the decimal point. more: `most`, the
    value of a full bar; `signed`, to show a plus before positive values; `change`, for bars that
    extend to either side.
    """
    numbers = np.ma.asanyarray(values).tolist() if isinstance(values, np.ndarray) else list(values)
    if all(number is None for number in numbers):
        return None
    return {"title": title, "values": numbers, "scale": scale, "digits": digits, **more}


def time_column(
    title: str, values_ns: npt.NDArray[Any], *, like_ns: int = 0, bars: bool = False
) -> Block | None:
    """Return a column of times, all in one unit; None if none is given.

    like_ns: a time that determines the unit instead of the largest value, so that columns agree.
    """
    largest_ns = max((value for value in values_ns.tolist() if value is not None), default=0)
    unit, scale = column_unit(like_ns or largest_ns)
    more = {"most": largest_ns} if bars and largest_ns else {}
    return number_column(
        f"{title} ({unit})", values_ns, scale=scale, digits=0 if scale == 1 else 3, **more
    )


def unit_of(largest_ns: int) -> tuple[str, int]:
    """Return the largest unit that is not longer than a time, and its length in ns."""
    return next(one for one in _UNITS if largest_ns >= one[1] or one[1] == 1)


def column_unit(largest_ns: int) -> tuple[str, int]:
    """Return the unit of a column of times, and its length in ns, given its largest value."""
    unit, scale = unit_of(largest_ns)
    return _FINER.get(unit, (unit, scale)) if largest_ns < _LEAST * scale else (unit, scale)


def columns_of_runs(base_ns: Int64, new_ns: Int64, heads: tuple[str, str]) -> list[Block | None]:
    """Return columns of times in two runs, with one unit and scale of bars, and of their changes.

    Times that a run does not record are masked. heads: the names of both runs.
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
        else said("new", "cell")
        if not old
        else said("gone", "cell")
        if change == -old
        else round(change / old, 6)
        for change, old in zip(delta.tolist(), base.tolist(), strict=True)
    ]
    return [
        {"title": f"{heads[0]} ({unit})", "values": base_ns.tolist(), **bars},
        {"title": f"{heads[1]} ({unit})", "values": new_ns.tolist(), **bars},
        {"title": f"Change ({unit})", "values": delta_ns.tolist(), **changes},
        {"title": "Change", "kind": "relative", "values": shares},
    ]


def size_column(
    title: str, values_bytes: npt.NDArray[Any], *, signed: bool = False
) -> Block | None:
    """Return a column of sizes in MB; None if all are 0 or masked.

    signed: whether to show a plus before positive values, which are changes.
    """
    if not any(values_bytes.tolist()):
        return None
    return number_column(f"{title} (MB)", values_bytes, scale=1e6, digits=1, signed=signed)


def rate_column(title: str, values: npt.NDArray[Any]) -> Block | None:
    """Return a column of bandwidths in GB/s; None if none is given."""
    return number_column(f"{title} (GB/s)", _rounded(values, 4), digits=2)


def scaled_column(title: str, values: npt.NDArray[Any], unit: str) -> Block | None:
    """Return a column of amounts, with the metric prefix of the largest; None if none is given."""
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
    """Return columns of a table, each formatted by its name and dtype; None for empty ones.

    Names of times end in _ns, of sizes in _bytes, of bandwidths in _gb_s; other real numbers are
    shares.

    of: the declaration of the table, for headings and units. bars: columns with a bar in each cell.
    like_ns: see `time_column`. titles: headings by name, instead of the declared ones.
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
        elif column.kind is Kind.REAL:
            shown.append(number_column(title, values, digits=2))
        elif values.dtype.kind == "f":
            shown.append(share_column(title, values))
        else:
            make = text_column if values.dtype == object else number_column
            shown.append(make(title, values))
    return shown


def view_of(
    spec: Spec, view: View, rows: Table, *, caption: str = "", note: str = ""
) -> Block | None:
    """Return a table as declared by a view; None without rows.

    caption: used instead of the view's. note: text below the table.
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


def open_column(
    outputs: Sequence[OutputFile],
    ranks: Int64,
    start_ns: Int64 | None = None,
    end_ns: Int64 | None = None,
) -> Block | None:
    """Return a column of commands that open a timeline at ranks and times; None without any.

    start_ns, end_ns: (n,), of each row; None for the times that are in view by default. Times
    outside of all files have no command.
    """
    commands = []
    for at, rank in enumerate(ranks.tolist()):
        output, window = next(iter(outputs), None), []
        if start_ns is not None and end_ns is not None:
            first_ns, last_ns = int(start_ns[at]), int(end_ns[at])
            shown = [
                one for one in outputs if one.drawn_ns[0] < last_ns and first_ns < one.drawn_ns[1]
            ]
            output = next(iter(shown), None)
            edges_ns = [max(0, one - output.drawn_ns[0]) for one in (first_ns, last_ns) if output]
            window = ["--window", ":".join(f"{edge_ns / 10**6:.3f}ms" for edge_ns in edges_ns)]
        words = ["tlexport", "open", str(output and output.path), "--ranks", str(rank), *window]
        commands.append(printable(command_line(words)) if output else "")
    if not any(commands):
        return None
    return {"title": "Open", "kind": "command", "values": commands}


def sorted_texts(title: str, texts: Iterable[str], values: Iterable[float | None]) -> Block:
    """Return a column of strings that is sorted by `values`; an empty string is shown as a dash."""
    return {"title": title, "kind": "labels", "values": list(values), "texts": list(texts)}


def format_rank(number: int | None, profiled: object) -> str:
    """Format a rank that may be unknown, or not in the profile."""
    if number is None:
        return said("another rank", "label")
    return said(f"rank {number}" if profiled else f"rank {number} (not read)", "label")


def format_amount(value: int, unit: str) -> str:
    """Format an amount with four significant digits and a metric prefix."""
    prefix, scale = _prefix_of(value)
    return f"{value / scale:#.4g} {prefix}{unit}" if prefix else f"{value} {unit}"


def _prefix_of(largest: float) -> tuple[str, int]:
    return next((one for one in _PREFIXES if largest >= one[1]), _PREFIXES[-1])


def _rounded(values: npt.NDArray[Any], digits: int) -> list[float | None]:
    return [None if value is None else round(value, digits) for value in values.tolist()]


def left_out(count: int, noun: str, but: str = "") -> str:
    """Format the number of rows that only the JSON report has, empty for 0.

    but: a remark on them, such as ", all faster,".
    """
    return (
        f"{format_count(count, f'more {noun}')}{but} in the JSON report (--json)." if count else ""
    )


def first_rows(rows: Table, most: int, noun: str = "row") -> tuple[Table, str]:
    """Return the first rows, and a note on the number of other rows."""
    shown = rows.take(slice(most))
    return shown, left_out(len(rows) - len(shown), noun)
