"""Proves that what is called slow is slow, by a plain look at all ranks and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.overlap import expected_overlap
from tests.support.profile_shelf import ProfileShelf
from timeline.commands.export import export
from timeline.tables.table import Table
from timeline.tables.times import PARTS
from timeline.verdict.figures import Figures
from timeline.verdict.mean_step import mean_steps
from timeline.verdict.verdict import Verdict, slowest_rank_of_each_step

Row = dict[str, Any]


def _column(values: list[Any]) -> Any:
    """A column of integers; None is masked."""
    absent = [value is None for value in values]
    plain = np.array([0 if value is None else value for value in values], np.int64)
    return np.ma.masked_array(plain, absent) if any(absent) else plain


def _table(rows: list[Row]) -> Table:
    return Table({name: _column([row[name] for row in rows]) for name in rows[0]} if rows else {})


VENDOR_PARTS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns")
NOTHING = Table(
    {
        name: np.array([], object if name in ("type", "core") else np.int64)
        for name in ("communication", "type", "core", "count", "total_ns", "shortest_ns")
    }
    | {name: np.array([], np.int64) for name in ("longest_ns", "waited_ns")}
)

NO_WAITS = Table(
    {name: np.array([], np.int64) for name in ("rank", "times_last", "waited_ns", "caused_ns")}
    | {"slowest_ns": np.array([], np.int64)}
)


@st.composite
def _figures(draw: st.DrawFn) -> Figures:
    """Ranks with steps of one graph or two, some without device records, and some without steps."""
    graphs = draw(st.sampled_from([(None,), (4,), (1, 2)]))
    ranks, steps = list[Row](), list[Row]()
    for rank in draw(st.lists(st.integers(0, 20), unique=True, min_size=1, max_size=5)):
        steps_of_rank = list[Row]()
        for graph in graphs:
            for step in range(draw(st.integers(0, 4))):
                span = draw(st.one_of(st.none(), st.integers(0, 1000)))
                steps_of_rank.append(
                    {
                        "rank": rank,
                        "graph": graph,
                        "step": step,
                        "start_ns": 1000 * step,
                        "device_start_ns": 1000 * step,
                        "span_ns": span,
                        "period_ns": (span or 0) + 7,
                        "before_ns": None if span is None else 5,
                        "between_ns": None if span is None else 2,
                        "tasks": 0 if span is None else 1,
                        "ordinary": int(span is not None and step > 0),
                        **dict.fromkeys(PARTS, None if span is None else span // 2),
                    }
                )
        spans: list[int] = [
            row["period_ns"] for row in steps_of_rank if row["span_ns"] and row["ordinary"]
        ]
        whole = draw(st.integers(0, 1000)) if not spans else sum(spans)
        ranks.append(
            {
                "rank": rank,
                "steps": len(steps_of_rank),
                "step_ns": round(sum(spans) / len(spans)) if spans else None,
                "span_ns": whole,
                "computing_ns": whole // 2,
                "communication_ns": whole // 2,
                "not_overlapped_ns": whole - whole // 2,
                "free_ns": 0,
                "copies_ns": 0,
                "idle_ns": 0,
                "outside_ns": 0,
                "before_ns": 0,
            }
        )
        steps += steps_of_rank
    rest = Table({})
    return Figures(
        {
            "overlap": _table(ranks),
            "steps": _table(steps),
            "operators": NOTHING,
            "longest_ops": rest,
            "waiting": NO_WAITS,
            "collectives": rest,
            "links": rest,
        }
    )


@given(figures=_figures())
def test_the_slowest_rank(figures: Figures) -> None:
    """By the mean of its steps; by all of its time where some rank that did anything has none."""
    verdict = Verdict.of(figures)
    used = [row for row in figures.overlap.to_dicts() if row["span_ns"]]
    if len(used) < 2:
        assert verdict.rank_extreme is None
    else:
        name = "span_ns" if any(row["step_ns"] is None for row in used) else "step_ns"
        times = {row["rank"]: row[name] for row in used}
        extreme = verdict.rank_extreme
        assert extreme is not None
        assert extreme.slowest_ns == times[extreme.slowest] == max(times.values())
        assert extreme.fastest_ns == times[extreme.fastest] == min(times.values())
        assert extreme.median_ns == int(np.median(list(times.values())))
    assert bool(list(verdict.sentences())) == bool(used)


@given(figures=_figures())
def test_the_slowest_step(figures: Figures) -> None:
    """Each graph and step with tasks is judged by the rank on which it took longest."""
    verdict = Verdict.of(figures)
    every = [row for row in figures.steps.to_dicts() if row["span_ns"]]
    rows = [row for row in every if row["tasks"]] or every
    graphs_of: dict[int, set[int]] = {}
    for row in rows:
        graphs_of.setdefault(row["rank"], set()).add(row["graph"])
    several = any(len(graphs) > 1 for graphs in graphs_of.values())
    longest: dict[Any, int] = {}
    for row in rows:
        key = (row["graph"] if several else None, row["step"])
        longest[key] = max(longest.get(key, 0), row["period_ns"])
    found = verdict.steps.to_dicts()
    assert sorted(row["period_ns"] for row in found) == sorted(longest.values())
    for row in found:
        assert row["period_ns"] == longest[row["graph"] if several else None, row["step"]]
    extreme = verdict.step_extreme
    ordinary: dict[Any, int] = {}
    plain = [row for row in every if row["ordinary"]]
    graphs_of = {}
    for row in every:
        graphs_of.setdefault(row["rank"], set()).add(row["graph"])
    several = any(len(graphs) > 1 for graphs in graphs_of.values())
    for row in plain:
        key = (row["graph"] if several else None, row["step"])
        ordinary[key] = max(ordinary.get(key, 0), row["period_ns"])
    if len(set(ordinary.values())) < 2:
        assert extreme is None
    else:
        assert extreme is not None
        assert extreme.slowest_ns == max(ordinary.values())
        assert extreme.fastest_ns == min(ordinary.values())
        assert any(
            (row["rank"], row["step"]) == (extreme.rank, extreme.slowest)
            for row in rows
            if row["period_ns"] == extreme.slowest_ns
        )


def test_graphs_of_ordinary_steps_alone() -> None:
    """A rank has several graphs also where all its ordinary steps are of one of them."""
    rows = [
        {"rank": rank, "graph": graph, "step": 3, "start_ns": 0, "span_ns": span_ns}
        | {"period_ns": span_ns, "ordinary": ordinary}
        for rank, graph, span_ns, ordinary in [(0, 1, 3, 1), (2, 1, 1, 0), (2, 2, 1, 1)]
    ]
    found = slowest_rank_of_each_step(_table(rows), ordinary=True).to_dicts()
    assert sorted((row["rank"], row["graph"]) for row in found) == [(0, 1), (2, 2)]


@given(figures=_figures())
def test_a_mean_step_is_that_of_ordinary_steps(figures: Figures) -> None:
    """Its parts are means over the ordinary steps of a rank, or the whole where one has none."""
    rows = [row for row in figures.steps.to_dicts() if row["span_ns"] and row["ordinary"]]
    used = [row for row in figures.overlap.to_dicts() if row["span_ns"]]
    by_rank = {rank["rank"]: [row for row in rows if row["rank"] == rank["rank"]] for rank in used}
    found = {row["rank"]: row for row in mean_steps(figures).to_dicts()}
    assert found.keys() == by_rank.keys()
    for rank in used:
        its = by_rank[rank["rank"]]
        row = found[rank["rank"]]
        if not all(by_rank.values()):
            assert (row["steps"], row["period_ns"]) == (0, rank["span_ns"])
            continue
        assert row["steps"] == len(its)
        for name in ("period_ns", "before_ns", "between_ns", *PARTS):
            assert abs(row[name] - sum(one[name] for one in its) / len(its)) <= 0.5


def test_the_verdict_on_a_profile(shelf: ProfileShelf, tmp_path: Any) -> None:
    """Ranks, steps and shares of operators are those of the simulated run."""
    profile = shelf.get("torch-db", ranks=3)
    report = export(profile.path, tmp_path / "out.pftrace")
    for row in report.verdict.ranks.to_dicts():
        whole = expected_overlap(profile.run, row["rank"])
        assert {part: row[part] for part in VENDOR_PARTS} == whole
        assert row["span_ns"] == sum(
            whole[part] for part in VENDOR_PARTS if part != "communication_ns"
        )
        steps = [one for one in report.figures.steps.to_dicts() if one["rank"] == row["rank"]]
        assert row["step_ns"] == round(sum(one["period_ns"] or 0 for one in steps) / 3)
    operators = report.figures.operators.to_dicts()
    for table, communication in ((report.verdict.operators, 0), (report.verdict.collectives, 1)):
        rows = [row for row in operators if row["communication"] == communication]
        whole_ns = sum(row["total_ns"] for row in rows)
        for row in table.to_dicts():
            total_ns = sum(
                one["total_ns"]
                for one in rows
                if (one["type"], one["core"]) == (row["type"], row["core"])
            )
            assert row["total_ns"] == total_ns
            assert row["share"] == round(total_ns / whole_ns, 6)
