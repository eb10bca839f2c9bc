"""All measurements of a run: its tables, each built when first used, and its findings."""

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
from timeline.tables import (
    calls,
    data,
    flops,
    idle,
    memory,
    operators,
    parallel,
    times,
    waits,
    work,
)
from timeline.tables.table import Method, Spec, Table
from timeline.verdict.advice import ADVICE, Advice, advice_of
from timeline.verdict.findings import ReportedFindings, report_findings

OMISSIONS: Spec = Spec(
    "omissions",
    "rank and reason for which records are left out of all figures",
    """
    rank
    text code, reason
    rows: the number of records
    loss: 1 if they could not be read, 0 if other records hold the same
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
    *(idle.IDLE, idle.IDLE_CALLS, calls.IDLE_GAPS, waits.CRITICAL_PATH),
    *(parallel.PIPELINE, flops.FLOPS),
    *(data.DATA_PREPARATION, data.DATA_QUEUES, data.DATA_PIPELINE, data.DATA_CURVES),
    *(operators.OPERATORS_BY_TYPE, operators.OPERATORS_BY_NAME, work.LAUNCHERS, work.MODULES),
    *(operators.OPERATORS, operators.OPERATOR_SUMS, operators.OPERATOR_DETAILS),
    *(operators.OPERATOR_STEPS, operators.REPORTED_OPERATOR_STEPS),
    *(parallel.STEP_TRACE, parallel.PARALLEL, parallel.PARALLEL_TIMES, operators.FRAMEWORK),
    *(memory.MEMORY_GRAPHS, memory.MEMORY_OPERATORS, memory.MEMORY_TENSORS, memory.MEMORY),
    *(work.COMPUTING_CAUSES, work.TASK_SUMS, work.WORK_CLASSES, work.LENGTHS),
    *(work.FRAMEWORK_OPERATORS, work.FRAMEWORK_MODULES, work.TASKS, work.HOST_CALLS),
    calls.HOST_CALLS_BY_NAME,
    *(ADVICE, OMISSIONS),
)
"""All tables, in the order of JSON, page, library and documentation."""


class Figures:
    """All measurements of some ranks, which are on one clock.

    `figures["steps"]`, or `figures.steps`, is the table of that name in TABLES, built when it is
    first used.

    tables: tables that exist already; without facts, all others are empty. facts: of each rank.
    waiting: waits of ranks for each other. path: critical path of the steps. culprit: the rank that
    the first finding names. findings: what to fix first; none if causes are not requested.
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

        path: critical path of the steps; without it, as in a comparison, findings are not searched
        for. on_disk: all ranks of the profile, selected or not.
        """
        figures = cls(facts=facts, waiting=waiting, path=path)
        if path is not None:
            figures.findings, figures.culprit = report_findings(
                *(facts, waiting, figures["critical_path"], figures["computing_causes"], on_disk),
                figures["idle_calls"],
            )
        figures._add_unreplayed_findings()
        return figures

    def _add_unreplayed_findings(self) -> None:
        """Add findings without a replay: a rank that idles for data, and a slow pipeline stage.

        A replay shows gains if hosts are recorded waiting for data. Idle time and step traces that
        indicate late data, and mean steps of stages, only give an upper bound.
        """
        # Imported here, as that module needs this one.
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
        """Return the figures with some tables replaced; existing tables are not rebuilt."""
        changed = copy.copy(self)
        changed._tables = {**self._tables, **tables}
        return changed

    @property
    def basis(self) -> Basis:
        """Return how much communication the statements on waiting are based on."""
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
        """Return the waits of ranks for each other in collectives."""
        assert self._waiting is not None
        return self._waiting

    @cached_property
    def ordinary(self) -> Sequence[Bool]:
        """Return a mask of ordinary steps for each rank."""
        return ordinary_steps(self.facts)

    @cached_property
    def exposed_parts(self) -> tuple[ExposedParts, ExposedParts]:
        """Return the parts of exposed communication, of ranks and of their steps."""
        return split_exposed(self.facts, self.rank_waiting.waits)

    def all_advice(self) -> tuple[Advice, ...]:
        """Return the advice that follows from the figures, unsorted."""
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
    """Yield a row of the table in the reference for each key of the JSON report."""
    for one in TABLES:
        if one.json is not None:
            meaning = (
                one.json.meaning
                or f"a row per {one.row_per}: {one.documented('`{}`')}{one.json.more}"
            )
            absent = re.sub(r"\b(masked|None)\b", "`null`", meaning)
            yield f"| `{one.json.key}` | {absent} |"
