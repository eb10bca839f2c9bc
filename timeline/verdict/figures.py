"""All measurements of a run: its tables, each made when it is first asked for, and its findings."""

from __future__ import annotations

import copy
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from timeline.analysis.gains.findings import Cause
from timeline.analysis.ordinary_steps import ordinary_steps
from timeline.analysis.path.critical_path import CriticalPath
from timeline.analysis.rank_facts import RankFacts
from timeline.analysis.waits.culprit import Culprit
from timeline.analysis.waits.exposed_waiting import ExposedParts, split_exposed
from timeline.analysis.waits.waiting import Basis, Waiting
from timeline.columns.columns import Bool
from timeline.tables import data, flops, idle, memory, operators, parallel, times, waits, work
from timeline.tables.table import Method, Spec, Table
from timeline.verdict.advice import ADVICE, Advice, advice_of
from timeline.verdict.findings import ReportedFindings, report_findings

OMISSIONS: Spec = Spec(
    "omissions",
    "rank and reason for which records are in no figure",
    """
    rank
    text code, reason
    rows: the number of records
    loss: 1 if they could not be read, 0 if other records say the same
    """,
    lambda run: OMISSIONS.of_rows(
        (one.rank, one.code.value, one.reason, one.rows, int(one.loss))
        for rank in run.facts
        for one in rank.omissions
    ),
    method=Method("omissions"),
)

TABLES: tuple[Spec, ...] = (
    *(times.OVERLAP, times.STEPS, times.CHECKS, times.UNUSED),
    *(waits.WAITED_FOR, waits.WAITING, waits.EXPOSED, waits.EXPOSED_STEPS),
    *(waits.LONGEST_OPS, waits.OPS, waits.COLLECTIVES, waits.COLLECTIVE_GROUPS, waits.LINKS),
    *(idle.IDLE, idle.IDLE_CALLS, waits.CRITICAL_PATH, parallel.PIPELINE, flops.FLOPS),
    *(data.DATA_PREPARATION, data.DATA_QUEUES, data.DATA_PIPELINE, data.DATA_CURVES),
    *(operators.OPERATORS_BY_TYPE, operators.OPERATORS_BY_NAME, work.LAUNCHERS, work.MODULES),
    *(operators.OPERATORS, operators.OPERATOR_SUMS, operators.OPERATOR_DETAILS),
    *(operators.OPERATOR_STEPS, operators.REPORTED_OPERATOR_STEPS),
    *(parallel.STEP_TRACE, parallel.PARALLEL, parallel.PARALLEL_TIMES, operators.FRAMEWORK),
    *(memory.MEMORY_GRAPHS, memory.MEMORY_OPERATORS, memory.MEMORY_TENSORS, memory.MEMORY),
    *(work.COMPUTING_CAUSES, work.TASK_SUMS, work.WORK_CLASSES, work.LENGTHS),
    *(work.FRAMEWORK_OPERATORS, work.FRAMEWORK_MODULES, work.TASKS, work.HOST_CALLS),
    *(ADVICE, OMISSIONS),
)
"""All tables. JSON, page, library and documentation have them in this order."""


class Figures:
    """All measurements of some ranks, which are on one clock.

    `figures["steps"]`, or `figures.steps`, is the table of that name in TABLES, made when it is
    first asked for.

    tables: made ones; without facts, all others are empty. facts: of each rank. waiting: who waits
    for whom. path: what determined the steps. culprit: the rank that the first finding names.
    findings: what to mend first; none if causes were not asked for.
    """

    def __init__(
        self,
        tables: Mapping[str, Table] = MappingProxyType({}),
        *,
        facts: Sequence[RankFacts] = (),
        waiting: Waiting | None = None,
        path: CriticalPath | None = None,
        culprit: Culprit | None = None,
        findings: ReportedFindings | None = None,
    ) -> None:
        self._tables = dict(tables)
        self._waiting = waiting
        self.facts = facts
        self.path = path or CriticalPath()
        self.culprit = culprit
        self.findings = findings or ReportedFindings()

    @classmethod
    def of(
        cls,
        facts: Sequence[RankFacts],
        waiting: Waiting,
        path: CriticalPath | None = None,
        on_disk: Collection[int] = (),
    ) -> Figures:
        """Return the figures of some ranks, which are on one clock.

        path: what determined the steps; a comparison has none, and looks for no findings.
        on_disk: those of the profile, selected or not.
        """
        figures = cls(facts=facts, waiting=waiting, path=path)
        if path is not None:
            figures.findings, figures.culprit = report_findings(
                facts, waiting, figures["critical_path"], figures["computing_causes"], on_disk
            )
        figures._look_for_unreplayed()
        return figures

    def _look_for_unreplayed(self) -> None:
        """Add the rank that idles for data, and the stage that limits a pipeline, to the findings.

        What hosts wait for data is found by replaying the run; what else says that data come late,
        as idle time and step traces do, only shows how much is lost. So do mean steps of stages.
        """
        # Both are made of these figures.
        from timeline.verdict.unreplayed import find_starved, find_uneven_stages

        uneven = find_uneven_stages(self) if self.findings.reason else None
        if uneven is not None:
            self.findings = self.findings.with_fault(uneven)
        starved = None if self.findings.knows_input else find_starved(self)
        if starved is None:
            return
        self.findings, culprit = self.findings.with_fault(starved.to_finding()), self.culprit
        if culprit is None or culprit.share < starved.share:
            waiters = culprit.waiters if culprit and culprit.rank == starved.rank else ()
            self.culprit = Culprit(
                starved.rank,
                True,
                Cause.INPUT,
                sum(waiter.waited_ns for waiter in waiters),
                starved.share,
                starved.lost_ns,
                max(starved.steps, 1),
                waiters,
            )

    def __getitem__(self, name: str) -> Table:
        if name not in self._tables:
            spec = spec_of(name)
            self._tables[name] = spec.of_run(self) if self.facts else Table({})
        return self._tables[name]

    def __getattr__(self, name: str) -> Table:
        if name.startswith("_") or not any(spec.name == name for spec in TABLES):
            raise AttributeError(name)
        return self[name]

    def with_tables(self, **tables: Table) -> Figures:
        """Return the figures with some tables replaced; those made of them stay as they are."""
        changed = copy.copy(self)
        changed._tables = {**self._tables, **tables}
        return changed

    @property
    def basis(self) -> Basis:
        """Return the basis of the statements on waiting."""
        return Basis() if self._waiting is None else self._waiting.basis

    def in_json(self) -> dict[str, Any]:
        """Return the tables of the JSON report by their keys."""
        return {
            one.json.key: one.json.shape(self, self[one.name])
            for one in TABLES
            if one.json is not None
        }

    @property
    def rank_waiting(self) -> Waiting:
        """Return who waits for whom in collectives."""
        assert self._waiting is not None
        return self._waiting

    @cached_property
    def ordinary(self) -> Sequence[Bool]:
        """Return which steps of each rank are ordinary."""
        return ordinary_steps(self.facts)

    @cached_property
    def exposed_parts(self) -> tuple[ExposedParts, ExposedParts]:
        """Return the parts of exposed communication, of ranks and of their steps."""
        return split_exposed(self.facts, self.rank_waiting.waits)

    def all_advice(self) -> tuple[Advice, ...]:
        """Return the advice that follows from the figures, in no order."""
        return advice_of(self)


def spec_of(name: str) -> Spec:
    """Return the declaration of a table.

    Raises:
        KeyError: there is none of that name.
    """
    for spec in TABLES:
        if spec.name == name:
            return spec
    raise KeyError(name)


def reference_lines() -> Iterator[str]:
    """Yield a row of the reference for each table of the JSON report."""
    for one in TABLES:
        if one.json is not None:
            meaning = (
                one.json.meaning or f"a row per {one.rows}: {one.documented('`{}`')}{one.json.more}"
            )
            absent = re.sub(r"\b(masked|None)\b", "`null`", meaning)
            yield f"| `{one.json.key}` | {absent} |"
