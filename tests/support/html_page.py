"""A page of a report, read without a browser: what its script draws from, and what it allows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>$x_{1}$\x1b[31m\u202e'\"&amp;"
"""Ends scripts and attributes, is markup, a formula, and obeyed by terminals."""
MOST_BYTES = 500_000
"""No page is larger, however large the profile is."""


@dataclass
class ReadPage(HTMLParser):
    """The blocks of a page, its scripts, its policy, and the attributes that occur."""

    scripts: list[str] = field(default_factory=list)
    attributes: set[str] = field(default_factory=set)
    policy: str = ""
    blocks: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.attributes |= given.keys()
        if tag == "script":
            self.scripts.append("")
        elif tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"] or ""

    def handle_data(self, data: str) -> None:
        if self.scripts and self.lasttag == "script":
            self.scripts[-1] += data

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The tables by name."""
        return {block["name"]: block for block in self.blocks if block["is"] == "table"}

    def chart(self, name: str) -> dict[str, Any]:
        """The chart of a name."""
        (chart,) = (
            block
            for block in self.blocks
            if block.get("name") == name and block["is"] in ("plot", "bars", "heat", "ribbons")
        )
        return chart

    def titles(self, table: str) -> list[str]:
        """The titles of the columns, without units."""
        return [re.sub(r" \(.*", "", one["title"]) for one in self.tables[table]["columns"]]

    def column(self, table: str, title: str) -> list[str]:
        """What the cells of a column hold, -1 for nothing."""
        (at,) = [at for at, own in enumerate(self.titles(table)) if own == title]
        values = self.tables[table]["columns"][at]["values"]
        return ["-1" if value is None else str(value) for value in values]


def read(content: bytes) -> ReadPage:
    parsed = ReadPage()
    parsed.feed(content.decode())
    sections = json.loads(parsed.scripts[0])
    parsed.blocks = list(_all_blocks(sections))
    return parsed


def _all_blocks(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, list):
        for each in value:
            yield from _all_blocks(each)
    elif isinstance(value, dict):
        if "is" in value:
            yield value
        for each in value.values():
            yield from _all_blocks(each)
