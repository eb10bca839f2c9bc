"""The verdict or comparison stored in a timeline file: the printed lines, and their JSON."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from timeline.printable import valid_text
from timeline.reports.valid_json import json_of
from timeline.tables.table import paragraph_html
from timeline.units import format_count

if TYPE_CHECKING:
    from timeline.comparison.comparison import Comparison
    from timeline.reports.terminal import Display
    from timeline.verdict.figures import Figures
    from timeline.verdict.verdict import Verdict

TEXT = "io.tlexport.verdict"
"""Name of the file attribute that holds the verdict, a JSON object."""
CHECKSUM = "io.tlexport.verdict_crc32"
"""Name of the attribute that holds the CRC-32 of that object in UTF-8, in decimal digits."""
MOST_BYTES = 128 * 1024
"""Maximum size of the JSON object in UTF-8."""
PART_OF_LIMIT = 8
"""The JSON object takes at most one part in this many of the size limit of a file."""
SCHEMA = 1
"""Version of the JSON object, increased if readers of earlier versions could not read it."""
MOST_ROWS = 2_000
"""Number of rows to which a longer table is cut at once; a shorter one is cut by halves."""
LEAST_ROWS = 8
"""A table of at most this many rows is kept whole or left out."""
MOST_CHARACTERS = 1_000
"""Maximum length of a sentence."""
MOST_NOTES = 16
MOST_WAITERS = 8
"""Maximum number of ranks waiting for the culprit that are stored."""
_RANKED_BY = (
    *("waiting_ns", "step_ns", "period_ns", "caused_ns", "total_ns"),
    *("delta_ns", "delta_total_ns", "delta_bytes"),
)
"""Columns by which rows of tables are ranked: the first of them that a table has."""


class DamagedVerdictError(ValueError):
    """The stored verdict was changed since it was written, or this version cannot read it."""


@dataclass(frozen=True)
class FiledVerdict:
    """The answer to "what is slow", or "what changed", stored in a file.

    version: of the program that wrote it. kind: of the export. see_why: the next command, empty for
    none. notes: on what was read and assumed, limited in number and length. verdict, comparison:
    of an export or of two runs, with the names and values of their reports; both are None if the
    file has no room for tables. left_out: number of rows left out of each table, those of medium
    length. commands: lines with commands that show more. lines: as printed to a pipe, none in files
    of older versions. verbose_lines: as printed with -v, if there are more.
    """

    version: str
    kind: str
    sentences: tuple[str, ...]
    see_why: str = ""
    verdict: dict[str, Any] | None = None
    comparison: dict[str, Any] | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    schema: int = SCHEMA
    notes: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    verbose_lines: tuple[str, ...] = ()

    @classmethod
    def of_export(
        cls,
        version: str,
        kind: str,
        verdict: Verdict,
        figures: Figures,
        see_why: str,
        notes: Sequence[str] = (),
    ) -> FiledVerdict:
        """Return the verdict to store with an export."""
        from timeline.reports.terminal_verdict import verdict_text  # reading a file needs no Rich

        brief, verbose = (
            verdict_text(verdict, figures, _pipe(), verbose=verbose) for verbose in (False, True)
        )
        culprit = verdict.culprit
        few = culprit and replace(culprit, waiters=culprit.waiters[:MOST_WAITERS])
        return cls(
            version,
            kind,
            tuple(_shortened(verdict.sentences())),
            valid_text(see_why),
            replace(verdict, culprit=few).to_dict(),
            notes=_first_of(notes),
            commands=tuple(map(valid_text, verdict.commands_text(see_why))),
            lines=tuple(brief.splitlines()),
            verbose_lines=tuple(verbose.splitlines()),
        )

    @classmethod
    def of_comparison(
        cls, version: str, kind: str, comparison: Comparison, notes: Sequence[str] = ()
    ) -> FiledVerdict:
        """Return the verdict to store with a comparison."""
        from timeline.reports.terminal_comparison import comparison_text  # as above

        return cls(
            version,
            kind,
            tuple(_shortened(comparison.sentences())),
            comparison=comparison.to_dict(),
            notes=_first_of(notes),
            lines=tuple(comparison_text(comparison, _pipe()).splitlines()),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the stored verdict as plain values, under the names of the report."""
        summary: dict[str, Any] = {
            "schema": self.schema,
            "status": "ok",
            "version": self.version,
            "kind": self.kind,
            "sentences": list(self.sentences),
            "notes": list(self.notes),
            "see_why": self.see_why,
            "left_out": self.left_out,
        }
        parts = {"verdict": self.verdict, "comparison": self.comparison}
        return summary | {name: part for name, part in parts.items() if part is not None}

    def to_json(self) -> bytes:
        """Return the stored verdict as one JSON object."""
        import msgspec  # slow to load, and needed only to read a verdict or print it as JSON

        return msgspec.json.format(json_of(self.to_dict()))

    def __str__(self) -> str:
        return "\n".join([*self.sentences, *self.commands])

    def _repr_html_(self) -> str:
        return paragraph_html(*str(self).splitlines())

    def attributes(self, limit_bytes: int = 0) -> tuple[tuple[str, str], ...]:
        """Return the attributes that hold the verdict in a file of limited size, 0 for no limit.

        The middle rows of the largest table are left out first, then all tables, then lines other
        than sentences, then sentences from the last one; the first sentence is always kept.
        """
        most_bytes = min(MOST_BYTES, limit_bytes // PART_OF_LIMIT) if limit_bytes else MOST_BYTES
        filed: FiledVerdict | None = self
        text = b""
        while filed is not None and len(text := filed._text()) > most_bytes:
            filed = filed._smaller()
        return (TEXT, text.decode()), (CHECKSUM, str(zlib.crc32(text)))

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> FiledVerdict | None:
        """Return the verdict in the attributes of a file, None if there is none.

        Raises:
            DamagedVerdictError: it was changed since it was written, or is of another version.
        """
        if TEXT not in attributes:
            return None
        import msgspec  # as above

        text = attributes[TEXT].encode("utf-8", "surrogatepass")
        if attributes.get(CHECKSUM) != str(zlib.crc32(text)):
            raise DamagedVerdictError("was changed since it was written")
        try:
            filed = msgspec.json.decode(text, type=cls)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedVerdictError("is of another version of tlexport") from error
        if filed.schema != SCHEMA:
            raise DamagedVerdictError("is of another version of tlexport")
        return filed

    def _text(self) -> bytes:
        more = {name: getattr(self, name) for name in ("commands", "lines", "verbose_lines")}
        return json_of(self.to_dict() | more)

    def _smaller(self) -> FiledVerdict | None:
        """Return a smaller verdict, None if nothing more can be left out."""
        name, part = ("verdict", self.verdict) if self.verdict else ("comparison", self.comparison)
        if part:
            return self._with_less_of(name, part)
        if self.sentences and self.lines != self.sentences:
            return replace(self, lines=self.sentences, verbose_lines=())
        if len(self.sentences) > 1:
            few = self.sentences[:-1]
            return replace(self, sentences=few, lines=few)
        if self.notes:
            return replace(self, notes=self.notes[:-1])
        return replace(self, see_why="", commands=()) if self.see_why or self.commands else None

    def _with_less_of(self, name: str, part: dict[str, Any]) -> FiledVerdict:
        """Return the verdict without the middle of its largest table, or without its tables."""
        tables = {
            key: rows
            for key, rows in part.items()
            if isinstance(rows, list) and rows and isinstance(rows[0], dict)
        }
        long = {key: rows for key, rows in tables.items() if len(rows) > LEAST_ROWS}
        if long:
            key = max(long, key=lambda key: len(json_of(long[key])))
            few = _ends(long[key])
            lost = {key: len(long[key]) - len(few)}
            changed: Any = {name: {**part, key: few}}
        else:
            lost = {key: len(rows) for key, rows in tables.items()}
            changed = {name: None}
        counts = {f"{name}.{key}": count for key, count in lost.items()}
        summed = {key: self.left_out.get(key, 0) + count for key, count in counts.items()}
        return replace(self, **changed, left_out=self.left_out | summed)


def _pipe() -> Display:
    from timeline.reports.terminal import PIPE_WIDTH, Display

    return Display(PIPE_WIDTH, "utf-8", terminal=False)


def _ends(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return half of the rows, or MOST_ROWS of them, in order: the longest and the shortest."""
    name = next((name for name in _RANKED_BY if rows[0].get(name) is not None), "")
    order = sorted(range(len(rows)), key=lambda at: -(rows[at].get(name) or 0))
    keep = min(MOST_ROWS, max(LEAST_ROWS, len(rows) // 2))
    first = keep - keep // 4
    return [rows[at] for at in sorted([*order[:first], *order[len(rows) - (keep - first) :]])]


def _first_of(notes: Sequence[str]) -> tuple[str, ...]:
    """Return the first notes, shortened, and one that counts the others."""
    more = len(notes) - MOST_NOTES
    last = [f"and {format_count(more, 'more note')}."] if more > 0 else []
    return tuple(_shortened([*notes[:MOST_NOTES], *last]))


def _shortened(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in map(valid_text, sentences):
        cut = len(sentence) > MOST_CHARACTERS
        yield f"{sentence[: MOST_CHARACTERS - 1]}…" if cut else sentence
