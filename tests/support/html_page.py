"""A page of a report, read as a browser reads it without its scripts."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>$x_{1}$\x1b[31m\u202e'\"&amp;"
"""Ends scripts and attributes, is markup, a formula, and obeyed by terminals."""
MOST_BYTES = 500_000
"""No page is larger, however large the profile is."""


@dataclass
class ReadPage(HTMLParser):
    """The tables of a page by name, its scripts, and the attributes that occur."""

    tables: dict[str, list[list[tuple[str, str | None]]]] = field(default_factory=dict)
    scripts: list[str] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    policy: str = ""

    def __post_init__(self) -> None:
        super().__init__()
        self._rows: list[list[tuple[str, str | None]]] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.attributes |= given.keys()
        if tag == "table":
            self._rows = self.tables.setdefault(given["id"] or "", [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append(("", given.get("data-v")))
            self._inside = "cell"
        elif tag == "script":
            self.scripts.append("")
            self._inside = "script"
        elif tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "script"):
            self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "cell":
            text, value = self._rows[-1][-1]
            self._rows[-1][-1] = text + data, value
        elif self._inside == "script":
            self.scripts[-1] += data

    def column(self, table: str, title: str) -> list[str]:
        """What the cells of a column hold: the exact value where they have one."""
        head, *rows = self.tables[table]
        (at,) = [at for at, (text, _) in enumerate(head) if re.sub(r" \(.*", "", text) == title]
        return [row[at][0] if row[at][1] is None else str(row[at][1]) for row in rows]

    @property
    def data(self) -> dict[str, Any]:
        """What the script draws from."""
        (text,) = [text for text in self.scripts if text.startswith("{") and '"series"' in text]
        parsed: dict[str, Any] = json.loads(text)
        return parsed


def read(content: bytes) -> ReadPage:
    parsed = ReadPage()
    parsed.feed(content.decode())
    return parsed
