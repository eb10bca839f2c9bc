"""The verdict or comparison that a file was written with, as text in it."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from timeline.analysis.idle.idle_sums import MOST_CALLS, IdleCause
from timeline.comparison.comparison import Comparison
from timeline.comparison.parts import WHOLE, are_classes
from timeline.records.not_given import NO_ID
from timeline.tables.idle import least_gap_ns, sum_of_selection
from timeline.tables.table import Table, paragraph_html
from timeline.tables.times import PARTS
from timeline.units import spell_count
from timeline.verdict.figures import Figures
from timeline.verdict.verdict import Verdict

_TEXTS = frozenset(
    {"call", "cause", "core", "history", "metric", "name", "part_of", "type"}
) | frozenset(
    {"class", "collective", "direction", "launched_by", "path", "phase", "shapes", "task"}
)
_REALS = frozenset({"share"})
_FLAGS = frozenset({"profiled"})
_TIMES = "computing_ns? communication_ns? not_overlapped_ns? copies_ns? idle_ns?"
_EDGES = "before_ns? between_ns?"
_OPERATORS = "type core count total_ns share"
_CHANGE = "base_ns? new_ns? delta_ns"
_VERDICT = {
    "steps": f"rank graph? step period_ns {_EDGES} {_TIMES} waiting_ns* transfer_ns*",
    "operators": _OPERATORS,
    "collectives": _OPERATORS,
    "stragglers": "rank caused_ns times_last shared slowest_ns late_ns? history",
    "mean_steps": f"rank steps period_ns {_EDGES} waiting_ns? transfer_ns? {_TIMES}",
}
_FIGURES = {
    "steps": "rank graph?",
    "longest_ops": "rank name step? duration_ns",
    "waited_for": "waited_for_rank? profiled times waited_ns",
    "idle": "step? cause gaps total_ns least_ns?",
    "idle_calls": "step? cause call? total_ns",
}
_COMPARISON = {
    "overall": f"metric part_of {_CHANGE}?",
    "steps": f"base_step? new_step? {_CHANGE}",
    "ranks": f"rank {_CHANGE}",
    "operators": f"type name shapes? {_CHANGE}",
    "collectives": f"type name shapes? {_CHANGE}",
    "waiting": f"waited_for_rank? profiled {_CHANGE}",
    "launchers": f"launched_by? phase? {_CHANGE}",
    "copies": f"task? {_CHANGE}",
    "hccl_tasks": f"collective? task {_CHANGE}",
    "framework_operators": f"name shapes? {_CHANGE}",
    "operator_memory": "name base_bytes new_bytes delta_bytes",
    "modules": "path direction base_total_ns new_total_ns delta_total_ns",
}
"""By table, the columns that text is made of; those with a question mark may lack values, and those
with an asterisk may be missing, as in files of before they were told."""


@dataclass(frozen=True)
class FiledFigures:
    """The tables of an export that its text is made of besides the verdict, with few rows."""

    steps: Table = field(default_factory=lambda: Table({}))
    """The graphs of each rank."""
    longest_ops: Table = field(default_factory=lambda: Table({}))
    waited_for: Table = field(default_factory=lambda: Table({}))
    """Those that are not profiled."""
    idle: Table = field(default_factory=lambda: Table({}))
    idle_calls: Table = field(default_factory=lambda: Table({}))


def verdict_fault(verdict: Verdict, figures: FiledFigures) -> str | None:
    """Return why no text can be made of a verdict, None if it can."""
    faults = [*_faults(verdict, _VERDICT), *_faults(figures, _FIGURES)]
    if faults:
        return faults[0]
    if not len(verdict.mean_steps):
        return None if verdict.mean is None else "mean_steps has no rows"
    if missing := {"period_ns", "waiting_ns", *PARTS} - {"outside_ns"} - set(verdict.rank_means):
        return f"rank_means lacks {min(missing)}"
    for table in (verdict.operators, verdict.collectives):
        if len(table) and (table["count"] < 1).any():
            return "an operator never ran"
    causes = {cause.value for cause in IdleCause}
    if len(figures.idle) and not set(figures.idle["cause"].tolist()) <= causes:
        return "idle has another cause"
    return None


def comparison_fault(comparison: Comparison) -> str | None:
    """Return why no text can be made of a comparison, None if it can."""
    faults = [*_faults(comparison, _COMPARISON)]
    if faults:
        return faults[0]
    paired = {"operators": comparison.operators, "collectives": comparison.collectives}
    counts = {name for name, table in paired.items() if len(table)} - set(comparison.in_one_run)
    counts |= {"steps", "ranks"} - set(comparison.row_counts)
    if counts:
        return f"the rows of {min(counts)} are not counted"
    overall, known = comparison.overall, {"", WHOLE}
    if not len(overall):
        return "overall has no rows"
    for metric, part_of in zip(
        overall["metric"].tolist(), overall["part_of"].tolist(), strict=True
    ):
        if part_of not in known:
            return f"overall has no {part_of}"
        known.add(metric)
    whole = (overall["metric"] == WHOLE) & ~are_classes(overall)
    if np.ma.getmaskarray(overall["base_ns"])[whole].any() or not whole.any():
        return "the whole is not known"
    return None


def _faults(holder: object, needed: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with the tables, which may have no columns."""
    for one in fields(holder):  # type: ignore[arg-type]
        table = getattr(holder, one.name)
        if not isinstance(table, Table):
            continue
        if any(len(column) != len(table) for column in table.columns.values()):
            yield f"columns of {one.name} are not equally long"
        elif table.columns:
            for word in needed.get(one.name, "").split():
                name = word.rstrip("?*")
                if name not in table.columns and word.endswith("*"):
                    continue
                if not _fits(table.columns.get(name), name, may_lack=word != name):
                    yield f"{one.name} has no {name} that is right"


def _fits(column: npt.NDArray[Any] | None, name: str, *, may_lack: bool) -> bool:
    """Return whether a column is there and of its kind; one without values is of every kind."""
    if column is None:
        return False
    values = column.tolist()
    there = [value for value in values if value is not None]
    kinds: tuple[type, ...] = (
        (str,)
        if name in _TEXTS
        else (bool,)
        if name in _FLAGS
        else (int, float)
        if name in _REALS
        else (int,)
    )
    return (may_lack or len(there) == len(values)) and all(type(one) in kinds for one in there)


TEXT = "io.tlexport.verdict"
"""The fact of a file that holds the verdict, a JSON object."""
CHECKSUM = "io.tlexport.verdict_crc32"
"""The fact that holds the CRC-32 of its UTF-8, in decimal digits."""
MOST_BYTES = 64 * 1024
"""Of the text in UTF-8."""
SCHEMA = 1
"""Raised when a reader of today could not read the text."""
MOST_ROWS = 2_000
"""Of a table that is cut by its rows alone, before it is cut to the size."""
LEAST_ROWS = 8
"""A table with so many rows or fewer is kept whole, or left out."""
LONGEST_OPS = 16
"""Communication ops of all ranks that are told one by one."""
MOST_CHARACTERS = 1_000
"""Of a sentence."""
MOST_NOTES = 16
MOST_WAITERS = 8
"""Ranks that wait for the culprit and are named."""
_RANKED_BY = (
    "waiting_ns",
    "step_ns",
    "period_ns",
    "caused_ns",
    "waited_ns",
    "total_ns",
    "delta_ns",
    "delta_total_ns",
    "delta_bytes",
    "duration_ns",
)
"""Columns by which rows of tables are long or short; the first that a table has counts."""


class DamagedVerdictError(ValueError):
    """The text is none that was written, or one that this version cannot read."""


@dataclass(frozen=True)
class _SaidVerdict(Verdict):
    """A verdict whose sentences were said when the file was written."""

    said: tuple[str, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Return the sentences as they were printed."""
        return iter(self.said)


@dataclass(frozen=True)
class _SaidComparison(Comparison):
    """A comparison whose sentences were said when the file was written."""

    said: tuple[str, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Return the sentences as they were printed."""
        return iter(self.said)


@dataclass(frozen=True)
class FiledVerdict:
    """The answer to "what is slow", or "what changed", that a file carries.

    version: of the program that wrote it. kind: of the export. sentences: as they were said.
    see_why: the next command, empty where there is none. notes: what was read, and what was
    assumed; the first of them, none too long. verdict, figures: of an export, with the
    tables that text for terminals is made of; comparison: of two runs, and then there is no
    verdict. Both are None in a file too small for tables. left_out: by table, how many rows are
    not in the file: those in the middle, neither long nor short.
    """

    version: str
    kind: str
    sentences: tuple[str, ...]
    see_why: str = ""
    verdict: Verdict | None = None
    figures: FiledFigures | None = None
    comparison: Comparison | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    schema: int = SCHEMA
    notes: tuple[str, ...] = ()

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
        """Return the verdict to file with an export."""
        shown = FiledFigures(
            _graphs_of_ranks(figures.steps),
            _longest(figures.longest_ops),
            _not_profiled(figures.waited_for),
            _idle_causes(figures.idle),
            _idle_calls(figures.idle_calls),
        )
        said = tuple(_shortened(verdict.sentences()))
        commands = tuple(map(_spelled, verdict.commands))
        few = replace(_with_few_waiters(verdict), commands=commands)
        return cls(version, kind, said, _spelled(see_why), few, shown, notes=_first_of(notes))

    @classmethod
    def of_comparison(
        cls, version: str, kind: str, comparison: Comparison, notes: Sequence[str] = ()
    ) -> FiledVerdict:
        """Return the verdict to file with a comparison."""
        said = tuple(_shortened(comparison.sentences()))
        return cls(version, kind, said, comparison=comparison, notes=_first_of(notes))

    def to_dict(self) -> dict[str, Any]:
        """Return the filed verdict as plain values, under the names of the report."""
        about: dict[str, Any] = {
            "schema": self.schema,
            "status": "ok",
            "version": self.version,
            "kind": self.kind,
            "sentences": list(self.sentences),
            "notes": list(self.notes),
            "see_why": self.see_why,
            "left_out": self.left_out,
        }
        if self.verdict is not None:
            about["verdict"] = self.verdict.to_dict()
        if self.comparison is not None:
            about["comparison"] = self.comparison.to_dict()
        return about

    def to_json(self) -> bytes:
        """Return the filed verdict as one JSON object."""
        import msgspec  # only for verdicts that are filed, or printed for programs

        return msgspec.json.format(msgspec.json.encode(self.to_dict()))

    def __str__(self) -> str:
        return "\n".join([*self.sentences, *self.why_lines()])

    def why_lines(self) -> list[str]:
        """Return the commands that show what is slow."""
        if self.verdict is not None:
            return list(self.verdict.commands_text(self.see_why))
        return [f"See why: {self.see_why}"] if self.see_why else []

    def _repr_html_(self) -> str:
        return paragraph_html(*str(self).splitlines())

    def attributes(self, most_bytes: int = MOST_BYTES) -> tuple[tuple[str, str], ...]:
        """Return the attributes of a file that hold the verdict, within a number of bytes.

        The middle rows of the largest table are left out first, then tables, then sentences from
        the last one on; the first is always there.
        """
        filed = self._with_few_rows()
        while len(text := _encoded(filed)) > most_bytes:
            smaller = filed._smaller()
            if smaller is None:
                break
            filed = smaller
        return (TEXT, text.decode()), (CHECKSUM, str(zlib.crc32(text)))

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, str]) -> FiledVerdict | None:
        """Return the verdict among the attributes of a file, None if there is none.

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
            filed = msgspec.json.decode(text, type=cls, dec_hook=_column_from)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DamagedVerdictError("is of another version of tlexport") from error
        if filed.schema != SCHEMA:
            raise DamagedVerdictError("is of another version of tlexport")
        if (fault := filed._fault()) is not None:
            raise DamagedVerdictError(f"is of another version of tlexport ({fault})")
        return filed.as_read()

    def as_read(self) -> FiledVerdict:
        """Return the verdict with sentences as they were printed, since tables may be cut."""
        return replace(
            self,
            verdict=_saying(_SaidVerdict, self.verdict, self.sentences),
            comparison=_saying(_SaidComparison, self.comparison, self.sentences),
        )

    def _fault(self) -> str | None:
        """Return why no text can be made of it, None if it can."""
        if (self.verdict is None) is not (self.figures is None):
            return "figures are not those of a verdict"
        if self.comparison is not None and self.sentences:
            return comparison_fault(self.comparison)
        if self.verdict is not None and self.figures is not None and self.sentences:
            return verdict_fault(self.verdict, self.figures)
        return None

    def _with_few_rows(self) -> FiledVerdict:
        """Return the verdict without the middle rows of tables that take long to encode."""
        filed, slow_rank = self, None if self.verdict is None else self.verdict.slow_rank
        for name, table in self._tables().items():
            few = table
            while len(few) > MOST_ROWS:
                few = _ends(few, slow_rank)
            if len(few) < len(table):
                filed = filed._with_table(name, few, len(table))
        return filed

    def _smaller(self) -> FiledVerdict | None:
        """Return the verdict with less in it, None if nothing can be left out."""
        tables = self._tables()
        slow_rank = None if self.verdict is None else self.verdict.slow_rank
        ends = {name: _ends(table, slow_rank) for name, table in tables.items()}
        long = [name for name, table in tables.items() if len(ends[name]) < len(table)]
        if long:
            name = max(long, key=lambda name: len(_encoded(tables[name])))
            return self._with_table(name, ends[name], len(tables[name]))
        if self.figures is not None or self.verdict is not None or self.comparison is not None:
            lost = {name: len(table) for name, table in tables.items() if len(table)}
            left_out = {
                name: self.left_out.get(name, 0) + lost.get(name, 0)
                for name in (self.left_out | lost)
            }
            return replace(self, verdict=None, figures=None, comparison=None, left_out=left_out)
        if len(self.sentences) > 1:
            return replace(self, sentences=self.sentences[:-1])
        if self.notes:
            return replace(self, notes=self.notes[:-1])
        return replace(self, see_why="") if self.see_why else None

    def _tables(self) -> dict[str, Table]:
        """Return all tables, by their holders and names."""
        return {
            f"{part}.{one.name}": table
            for part in _PARTS
            if (holder := getattr(self, part)) is not None
            for one in fields(holder)
            if isinstance(table := getattr(holder, one.name), Table)
        }

    def _with_table(self, name: str, table: Table, rows: int) -> FiledVerdict:
        """Return the verdict with some of the rows of a table."""
        part, _, table_name = name.partition(".")
        changed = replace(getattr(self, part), **{table_name: table})
        left_out = self.left_out.get(name, 0) + rows - len(table)
        whole: dict[str, Any] = {part: changed, "left_out": {**self.left_out, name: left_out}}
        return replace(self, **whole)


_PARTS = ("verdict", "figures", "comparison")


def _with_few_waiters(verdict: Verdict) -> Verdict:
    """Return the verdict with the first of those that wait for the culprit."""
    culprit = verdict.culprit
    if culprit is None:
        return verdict
    few = replace(culprit, waiters=culprit.waiters[:MOST_WAITERS])
    return replace(verdict, culprit=few)


def _not_profiled(waited_for: Table) -> Table:
    """Sum waits for ranks that are not read over all ranks: how often at most, and how long."""
    found: dict[int | None, list[int]] = {}
    for row in waited_for.to_dicts():
        if not row["profiled"]:
            times, waited_ns = found.get(row["waited_for_rank"], [0, 0])
            found[row["waited_for_rank"]] = [max(times, row["times"]), waited_ns + row["waited_ns"]]
    if not found:
        return Table({})
    ranks = [NO_ID if rank is None else rank for rank in found]
    times_and_waited = np.array(list(found.values()), np.int64)
    return Table(
        {
            "waited_for_rank": np.ma.masked_equal(np.array(ranks, np.int64), NO_ID),
            "profiled": np.zeros(len(found), object).astype(bool).astype(object),
            "times": times_and_waited[:, 0],
            "waited_ns": times_and_waited[:, 1],
        }
    )


def _idle_causes(idle: Table) -> Table:
    """Return why all devices idle, over the whole selection."""
    if not len(idle):
        return Table({})
    causes = sum_of_selection(idle, "cause")
    return Table(
        {
            "step": _no_steps(len(causes)),
            **{name: causes[name] for name in ("cause", "gaps", "total_ns")},
            "least_ns": np.full(len(causes), least_gap_ns(idle), np.int64),
        }
    )


def _idle_calls(calls: Table) -> Table:
    """Return the longest host calls during idle time of each cause, over the whole selection."""
    if not len(calls):
        return Table({})
    sums = sum_of_selection(calls, "cause", "call")
    seen, kept = Counter[str](), list[bool]()
    for cause in sums["cause"].tolist():
        seen[cause] += 1
        kept.append(seen[cause] <= MOST_CALLS)
    few = sums.take(np.array(kept, np.bool_))
    return Table(
        {
            "step": _no_steps(len(few)),
            **{name: few[name] for name in ("cause", "call", "total_ns")},
        }
    )


def _no_steps(count: int) -> npt.NDArray[Any]:
    return np.ma.masked_array(np.zeros(count, np.int64), np.ones(count, np.bool_))


def _longest(ops: Table) -> Table:
    if not len(ops):
        return ops
    return ops.take(np.argsort(-ops["duration_ns"], kind="stable")[:LONGEST_OPS])


def _graphs_of_ranks(steps: Table) -> Table:
    """Return the graphs of each rank: all that the text needs of the steps of all ranks."""
    if not len(steps):
        return Table({})
    both = Table({name: steps[name] for name in ("rank", "graph")})
    _, first = np.unique([f"{rank} {graph}" for rank, graph in both], return_index=True)
    return both.take(np.sort(first))


def _first_of(notes: Sequence[str]) -> tuple[str, ...]:
    """Return the first notes, none too long; the last one counts those left out."""
    more = len(notes) - MOST_NOTES
    last = [f"and {spell_count(more, 'more note')}."] if more > 0 else []
    return tuple(_shortened([*notes[:MOST_NOTES], *last]))


def _shortened(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        told = _spelled(sentence)
        cut = len(told) > MOST_CHARACTERS
        yield f"{told[: MOST_CHARACTERS - 1]}…" if cut else told


def _spelled(text: str) -> str:
    """Return text that UTF-8 can hold: names of files may have other bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _ends(table: Table, slow_rank: int | None) -> Table:
    """Return half of the rows in order: the longest, the shortest, and those of one rank.

    Of the parts of a whole none is left out, but classes beside them are.
    """
    if "metric" in table.columns and "part_of" in table.columns:
        classes = are_classes(table)
        return table.take(~classes) if classes.any() else table
    count = len(table)
    order = np.arange(count)
    for name in _RANKED_BY:
        if name in table.columns and not np.ma.getmaskarray(table[name]).all():
            order = np.argsort(-np.ma.filled(table[name], 0), kind="stable")
            break
    keep = min(count, max(LEAST_ROWS, count // 2))
    first = keep - keep // 4
    kept = np.zeros(count, np.bool_)
    kept[order[:first]] = kept[order[count - (keep - first) :]] = True
    if slow_rank is not None and "rank" in table.columns:
        is_slow = np.ma.filled(table["rank"], NO_ID) == slow_rank
        kept |= is_slow & (np.count_nonzero(is_slow) == 1)
    return table if kept.all() else table.take(kept)


_Said = TypeVar("_Said", bound="_SaidVerdict | _SaidComparison")


def _saying(
    kind: type[_Said], plain: Verdict | Comparison | None, said: tuple[str, ...]
) -> _Said | None:
    if plain is None:
        return None
    values: dict[str, Any] = {one.name: getattr(plain, one.name) for one in fields(plain)}
    return kind(**values, said=said)


def _encoded(value: object) -> bytes:
    import msgspec  # as above

    return msgspec.json.encode(value, enc_hook=_values_of)


def _values_of(column: object) -> Any:
    """Return the values of a column; gaps are null."""
    if isinstance(column, np.ndarray):
        values = column.tolist()
        return [_plain(value) for value in values] if column.dtype == object else values
    if isinstance(column, np.generic):
        return column.item()
    raise NotImplementedError(f"a {type(column).__name__} in a verdict")


def _plain(value: Any) -> Any:
    """Return a value of any column with strings that UTF-8 can hold."""
    if isinstance(value, str):
        return _spelled(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value


def _column_from(_kind: type, values: Any) -> npt.NDArray[Any]:
    """Return values as a column: integers, reals, or anything else.

    Raises:
        TypeError, ValueError: it is no list, or a number is too large.
    """
    if not isinstance(values, list):
        raise TypeError("a column is no list")
    kinds = {type(value) for value in values if value is not None}
    if not kinds <= {int, float}:
        column = np.empty(len(values), object)
        column[:] = values
        return column
    dtype: Any = np.float64 if float in kinds else np.int64
    absent = [value is None for value in values]
    try:
        column = np.array([0 if value is None else value for value in values], dtype)
    except OverflowError as error:
        raise ValueError("a number is too large") from error
    return np.ma.masked_array(column, absent) if any(absent) else column
