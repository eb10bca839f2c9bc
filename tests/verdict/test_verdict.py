"""Proves that what is called slow is slow, that only that fails a gate, and what tables tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.overlap import expected_overlap
from tests.support.made_figures import MILLISECOND_NS, made_report
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main
from timeline.commands.export import export
from timeline.comparison.comparison import LEAST_STEPS, Gate
from timeline.tables.table import Table
from timeline.tables.times import PARTS
from timeline.verdict.figures import Figures
from timeline.verdict.mean_step import mean_steps
from timeline.verdict.unreplayed import find_uneven_stages
from timeline.verdict.verdict import Extreme, Verdict, slowest_rank_of_each_step

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


@pytest.mark.parametrize(("mean_ns", "each"), [(100, ", each on its slowest rank"), (103, "")])
def test_steps_above_the_mean_step_are_said_to_be_of_their_slowest_rank(
    mean_ns: int, each: str
) -> None:
    """As in a pipeline, where the last ranks begin later; elsewhere both are about the same."""
    verdict = Verdict.of(made_report(2, 3).figures)
    assert verdict.mean is not None
    extreme = Extreme(1, 105, 2, 103, 104)
    alike = replace(verdict, step_extreme=extreme, mean=replace(verdict.mean, period_ns=mean_ns))
    assert f"Steps take 103 ns to 105 ns{each}, the slowest is 1." in list(alike.sentences())


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


# -- sums of steps ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindspore-text"])
def test_waiting_and_transfer_of_steps_add_up_to_those_of_ranks(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """Over ordinary steps, to the nanosecond, and never more than is exposed."""
    figures = export(shelf.get(layout, ranks=3).path, tmp_path / "a.pftrace").figures
    steps, parts = figures.steps, figures.exposed_steps
    assert len(parts) == len(steps)
    ordinary = steps["ordinary"] == 1
    waiting_ns, transfer_ns = (np.ma.filled(parts[name], 0) for name in parts.columns)
    assert (waiting_ns + transfer_ns <= np.ma.filled(steps["not_overlapped_ns"], 0)).all()
    for row in figures.exposed.to_dicts():
        its = ordinary & (steps["rank"] == row["rank"])
        assert waiting_ns[its].sum() == row["waiting_ns"]
        assert transfer_ns[its].sum() == row["transfer_ns"]
    assert figures.exposed["waiting_ns"].sum() > 0


# -- gates -----------------------------------------------------------------------------------------


STEADY = [100, 101, 102, 103, 104]
NOISY = [80, 90, 100, 130, 160]


@pytest.mark.parametrize(
    ("base", "new", "limit", "ratio", "separated", "failed"),
    [
        (STEADY, [time + 20 for time in STEADY], 0.05, 122 / 102, True, True),
        (STEADY, [time + 20 for time in STEADY], 0.5, 122 / 102, True, False),
        (STEADY, STEADY, 0.0, 1.0, False, False),
        ([time + 20 for time in STEADY], STEADY, 0.05, 102 / 122, False, False),
        # Longer by more than is allowed, but a quarter of the steps before were as long.
        (NOISY, [110, 111, 112, 113, 114], 0.05, 1.12, False, False),
        # A few steps do not tell a change from noise.
        ([100, 100, 100, 100], [120] * 9, 0.05, 1.2, None, False),
        ([100] * 9, [120, 120, 120, 120], 0.05, 1.2, None, False),
        ([100], [900], 0.05, 9.0, None, False),
        ([100], [104], 0.05, 1.04, None, False),
        # Without steps the times from end to end do.
        ([], [120], 0.05, 1.5, None, True),
        ([], [], 0.6, 1.5, None, False),
    ],
)
def test_the_median_and_the_quartiles_decide(
    base: list[int],
    new: list[int],
    limit: float,
    ratio: float,
    separated: bool | None,
    failed: bool,
) -> None:
    gate = Gate.of(limit, np.array(base, np.int64), np.array(new, np.int64), (1000, 1500))
    assert gate.ratio == pytest.approx(ratio)
    assert (gate.separated, gate.failed) == (separated, failed)
    assert ("fails" in gate.sentence()) == failed
    assert bool(gate.warning) == (separated is None)


@pytest.mark.parametrize(("base", "new"), [([100] * 4, [120] * 9), ([100] * 9, [120] * 4)])
def test_too_few_steps_pass_and_say_why(base: list[int], new: list[int]) -> None:
    gate = Gate.of(0.05, np.array(base), np.array(new), (0, 0))
    told = f"fewer than {LEAST_STEPS} steps do not tell a change from noise"
    assert "passes" in gate.sentence()
    assert told in gate.sentence()
    assert f"does not fail on {len(base)} and {len(new)} steps" in gate.warning
    assert gate.to_dict()["separated"] is None


def test_nothing_is_judged_of_a_run_that_holds_nothing() -> None:
    nothing = np.empty(0, np.int64)
    gate = Gate.of(0.05, nothing, nothing, (0, 1500))
    assert (gate.ratio, gate.failed) == (None, False)
    assert gate.warning
    assert gate.to_dict()["ratio"] is None


TIMES = st.lists(st.integers(1, 10**9), min_size=LEAST_STEPS, max_size=30)


@given(TIMES, TIMES, st.floats(0, 2))
def test_it_never_fails_both_ways(some: list[int], others: list[int], limit: float) -> None:
    """Nor for what is not longer, nor where quartiles overlap."""
    base, new = np.array(some, np.int64), np.array(others, np.int64)
    there, back = Gate.of(limit, base, new, (0, 0)), Gate.of(limit, new, base, (0, 0))
    assert not (there.failed and back.failed)
    if there.failed:
        assert there.new_ns > there.base_ns
        assert np.quantile(new, 0.25) > np.quantile(base, 0.75)


# -- profiles without times ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({}, ": its operators compute 8.17 GFLOP, at 9.87 TFLOP/s."),
        ({"FLOPs": "N/A"}, " between forward and backward, at 9.87 TFLOP/s."),
        ({"FLOPS": None}, ": its operators compute 8.17 GFLOP."),
        ({"FLOPs": None, "FLOPS": "N/A"}, " between forward and backward."),
    ],
)
def test_any_of_the_operations_of_a_rank_may_be_absent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], figures: dict[str, object], says: str
) -> None:
    told = {"FLOPs": 8167.743, "FLOPS": 9868.936, "FLOPS_Utilization": 3.765} | figures
    (tmp_path / "flops_summary_0.json").write_text(json.dumps(told))
    assert main([str(tmp_path), "--verdict"]) == 0
    out = capsys.readouterr().out
    assert "Rank 0 uses 3.8% of the FLOP/s of its device" in out
    assert says in out


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize("slowest", [0, 1])
def test_an_uneven_stage_wins_what_it_computes_beyond_the_mean(ranks: int, slowest: int) -> None:
    """With two stages that is half of what it computes longer than the other."""
    made = made_report(ranks, 3).figures
    first = np.arange(ranks) < ranks // 2
    is_slow = first if slowest == 0 else ~first
    steps = made.steps
    of_slow = is_slow[np.asarray(steps["rank"])]
    steps = Table(
        {
            **steps.columns,
            "ordinary": np.ones(len(steps), np.int64),
            "computing_ns": np.where(of_slow, 60, 20) * MILLISECOND_NS,
            "period_ns": np.full(len(steps), 100 * MILLISECOND_NS),
        }
    )
    stages = [np.flatnonzero(first).tolist(), np.flatnonzero(~first).tolist()]
    parallel = Table(
        {
            "mode": np.array(["pipeline-parallel"], object),
            "stages": np.array([2]),
            "ranks": np.array([ranks]),
            "stage_ranks": np.array([stages, None], object)[:1],
        }
    )
    finding = find_uneven_stages(
        Figures({"overlap": made.overlap, "steps": steps, "parallel": parallel})
    )
    assert finding is not None
    assert finding.ranks == tuple(stages[slowest])
    assert finding.gain_share == pytest.approx(0.2)
    assert "60.00 ms per step, 40.00 ms were stages even: at most 20% to win" in finding.sentence
