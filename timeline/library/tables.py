"""Methods of an open profile that return tables."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from types import MethodType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar, cast

from timeline.declarations import with_keywords
from timeline.errors import UsageError, did_you_mean
from timeline.keywords import SelectionKeywords
from timeline.library.open_profile import ALWAYS_ASKED, OpenProfile, read_and_warn
from timeline.selection import Selection

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from timeline.tables.table import Spec, Table

_By_contra = TypeVar("_By_contra", contravariant=True)
_Ask_co = TypeVar("_Ask_co", covariant=True)


class Ask(Protocol):
    """A method that returns a table of a selection."""

    def __call__(
        self, selection: Selection | None = None, **keywords: Unpack[SelectionKeywords]
    ) -> Table:
        """Return the table."""


class AskBy(Protocol[_By_contra]):
    """A method that returns one of several tables of a selection."""

    def __call__(
        self,
        selection: Selection | None = None,
        by: _By_contra = ...,
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return the table that `by` chooses."""


class TableMethod(Generic[_Ask_co]):
    """Descriptor of a method that returns the tables whose declarations name it.

    Its signature and help are built from the declarations, which are loaded on first use.
    """

    name: str

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def __get__(self, profile: ProfileTables | None, _owner: type) -> _Ask_co:
        ask = self._function if profile is None else MethodType(self._function, profile)
        return cast(_Ask_co, ask)

    @cached_property
    def _function(self) -> Callable[..., Table]:
        name, specs = self.name, specs_of(self.name)
        ways = _ways(specs)

        def ask(
            self: ProfileTables,
            selection: Selection | None = None,
            by: str | None = ways[0],
            **keywords: Unpack[SelectionKeywords],
        ) -> Table:
            return self._table(name, specs, selection, by, keywords)

        plain = inspect.signature(ask)
        parameters = dict(plain.parameters)
        parameters["self"] = parameters["self"].replace(annotation=inspect.Parameter.empty)
        words = ", ".join(map(repr, filter(None, ways)))
        if words:
            or_none = " | None" if None in ways else ""
            parameters["by"] = parameters["by"].replace(annotation=f"Literal[{words}]{or_none}")
        else:
            del parameters["by"]
        cast(Any, ask).__signature__ = plain.replace(parameters=[*parameters.values()])
        ask.__name__, ask.__qualname__ = name, f"Profile.{name}"
        ask.__doc__ = _help(specs)
        return with_keywords(SelectionKeywords, Selection)(ask)


def specs_of(method: str) -> list[Spec]:
    """Return the tables that a method returns, the default first; empty for unknown methods."""
    from timeline.verdict import figures  # imported late: it takes longer than finding a profile

    return [one for one in figures.TABLES if one.method is not None and one.method.name == method]


def _ways(specs: Sequence[Spec]) -> list[str | None]:
    """Return the values of the argument `by`, the default first; None for a table without one."""
    methods = [one.method for one in specs if one.method is not None]
    return [one.by or None for one in methods] + [way for one in methods for way in one.levels]


def _help(specs: Sequence[Spec]) -> str:
    """Return the docstring of a method, built from the declarations of its tables."""
    parts = [f"Return a row per {specs[0].row_per}.", f"Columns: {specs[0].documented()}."]
    for spec in specs[1:]:
        way = spec.method.by if spec.method else ""
        parts.append(f"By {way}: a row per {spec.row_per}. Columns: {spec.documented()}.")
    parts.append("Values that are not known are masked or None.")
    lines = "\n\n".join(textwrap.fill(part, 92) for part in parts)
    missing = "something selected is not there, or a file cannot be read"
    return f"{lines}\n\nRaises:\n    TimelineError: {missing}."


class ProfileTables(OpenProfile):
    """An open profile with a method for each table, and `table` for any table by name."""

    overlap = TableMethod[Ask]()
    steps = TableMethod[Ask]()
    idle = TableMethod[AskBy[Literal["cause", "call"]]]()
    idle_gaps = TableMethod[Ask]()
    critical_path = TableMethod[Ask]()
    step_trace = TableMethod[Ask]()
    collectives = TableMethod[AskBy[Literal["longest", "op", "kind", "group"]]]()
    waiting = TableMethod[AskBy[Literal["pair", "rank"]]]()
    links = TableMethod[Ask]()
    parallel = TableMethod[Ask]()
    parallel_times = TableMethod[Ask]()
    operators = TableMethod[AskBy[Literal["type", "name", "launch", "module"]]]()
    operator_steps = TableMethod[AskBy[Literal["type", "name", "kernel"] | None]]()
    flops = TableMethod[Ask]()
    framework = TableMethod[Ask]()
    memory_graphs = TableMethod[Ask]()
    memory = TableMethod[AskBy[Literal["operator", "tensor"]]]()
    data_preparation = TableMethod[Ask]()
    data_queues = TableMethod[Ask]()
    data_pipeline = TableMethod[Ask]()
    tasks = TableMethod[Ask]()
    host_calls = TableMethod[AskBy[Literal["name"] | None]]()
    advice = TableMethod[Ask]()
    omissions = TableMethod[Ask]()

    @with_keywords(SelectionKeywords, Selection)
    def table(
        self,
        name: str,
        selection: Selection | None = None,
        by: str | None = None,
        **keywords: Unpack[SelectionKeywords],
    ) -> Table:
        """Return a table by the name of its method, such as flops.

        Args:
            name: name of any method that returns a table.
            selection: a part of the profile, all by default.
            by: the table to return, if the method has several.
            ranks, graphs, steps, window: the selection by keywords, as for a Selection.

        Raises:
            TimelineError: there is no such table, something selected does not exist, or a file
                cannot be read.
        """
        from timeline.verdict import figures  # imported late, as above

        specs = specs_of(name)
        if not specs:
            methods = {one.method.name for one in figures.TABLES if one.method is not None}
            raise UsageError(f"there is no table {name!r}{did_you_mean(name, sorted(methods))}")
        return self._table(name, specs, selection, by or _ways(specs)[0], keywords)

    def _table(
        self,
        name: str,
        specs: Sequence[Spec],
        selection: Selection | None,
        by: str | None,
        keywords: SelectionKeywords,
    ) -> Table:
        from timeline.verdict.figures import Figures  # imported late, as above

        ways = _ways(specs)
        if by not in ways:
            words = ", ".join(filter(None, ways))
            raise UsageError(f"by={by!r}: {name.replace('_', ' ')} are distinguished by {words}.")
        spec = specs[ways.index(by)] if len(specs) > 1 else specs[0]
        assert spec.method is not None
        questions = replace(ALWAYS_ASKED, **spec.method.questions)
        if spec.method.kept:
            table = self._measure(selection, keywords, questions).figures[spec.name]
        else:
            ranks = read_and_warn(*self._reader, self._chosen(selection, keywords), questions)
            table = Figures(facts=ranks.facts, waiting=ranks.waiting)[spec.name]
        return table.take(table["level"] == by) if by in spec.method.levels else table

    @with_keywords(SelectionKeywords, Selection)
    def estimate_gain(
        self,
        rank: int,
        selection: Selection | None = None,
        **keywords: Unpack[SelectionKeywords],
    ) -> int | None:
        """Estimate the ns by which the selection would end earlier if a rank were not slow.

        The run is replayed with each task of the rank, and each gap between launches on its host,
        no longer than the median of the other ranks. On simulated clusters, where the truth is
        known, the estimate is within 3 % of the run; beyond these it is unproven. None if the rank
        is not selected, or no other rank is.

        Raises:
            TimelineError: something selected does not exist, or a file cannot be read.
        """
        from timeline.analysis.gains.findings import estimate_gain_ns
        from timeline.analysis.gains.run import gather_run

        ranks = read_and_warn(*self._reader, self._chosen(selection, keywords), ALWAYS_ASKED)
        numbers = [facts.rank for facts in ranks.facts]
        run = gather_run(ranks.facts, ranks.waiting)
        if run is None or rank not in numbers or len(numbers) < 2:
            return None
        return estimate_gain_ns(run, numbers.index(rank))
