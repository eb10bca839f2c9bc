"""HTML of values, tables, lines and links to files, as a notebook shows them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from pathlib import Path

__all__ = ["cell_html", "link_html", "paragraph_html", "table_html"]


def cell_html(value: object) -> str:
    """A value as HTML; what is not given is empty."""
    return "" if value is None else _escaped(str(value))


def table_html(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of a head of text and of cells that are HTML."""
    names = "".join(f"<th>{_escaped(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{content}</td>" for content in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def paragraph_html(*lines: str) -> str:
    """Lines of text, nothing if there are none."""
    return f"<p>{'<br>'.join(map(_escaped, lines))}</p>" if lines else ""


def link_html(path: Path) -> str:
    """A link to a file; notebooks serve what lies beside them, by its relative path."""
    target = path.as_uri() if path.is_absolute() else urllib.parse.quote(path.as_posix())
    return f'<a href="{_escaped(target)}" download>{_escaped(str(path))}</a>'


def _escaped(text: str) -> str:
    import html  # it loads all entities of HTML, and most commands show nothing in a notebook

    return html.escape(text)
