"""Proves what tables tell of operator types, pipelines and scopes with their operations."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import PipelineOperations
from timeline.tables.data import Limit, pipeline_limits
from timeline.tables.flops import MOST_DEPTH, ROOT, ScopeNode, operator_scopes, scope_tree
from timeline.tables.operators import MOST_CURVES, OperatorCurves, operator_curves
from timeline.tables.table import Table

# -- curves of operator types ----------------------------------------------------------------------


Row = tuple[int, str | None, int]
"""Step, type and time of one rank."""


def curves_of(rows: Sequence[Row]) -> OperatorCurves | None:
    kinds = np.array([kind for _, kind, _ in rows], object)
    steps = Table(
        {
            "rank": np.zeros(len(rows), np.int64),
            "step": np.ma.masked_array([step for step, _, _ in rows]),
            "level": np.array(["type"] * len(rows), object),
            "type": kinds,
            "total_ns": np.array([total_ns for _, _, total_ns in rows], np.int64),
        }
    )
    named = np.array(sorted({kind for kind in kinds if kind is not None}), object)
    return operator_curves(
        steps, Table({"type": named, "communication": np.zeros(len(named), np.int64)})
    )


@given(
    st.lists(
        st.tuples(
            st.integers(1, 4),
            st.one_of(st.none(), st.sampled_from([f"Op{at}" for at in range(MOST_CURVES + 3)])),
            st.integers(0, 100),
        ),
        min_size=1,
    )
)
def test_curves_and_others_are_all_time(rows: list[Row]) -> None:
    """Each curve holds the times of its type by step; all that is in none is in the others."""
    found = curves_of(rows)
    if found is None:
        assert len({step for step, _, _ in rows}) < 2
        return
    for kind, curve in zip(found.types, found.mean_ns.tolist(), strict=True):
        for step, mean_ns in zip(found.steps.tolist(), curve, strict=True):
            assert mean_ns == sum(ns for at, name, ns in rows if (at, name) == (step, kind))
    assert found.totals_ns.sum() + found.others_ns == sum(ns for _, _, ns in rows)


def test_types_of_one_step_each_need_no_room_in_all_others() -> None:
    """Nor does one long name: 20,000 types and steps, and a name of 20,000 letters."""
    rows: list[Row] = [(at, f"Op{at}", at) for at in range(1, 20_000)]
    rows.append((1, "x" * 20_000, 1))
    tracemalloc.start()
    try:
        found = curves_of(rows)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found is not None
    assert found.types[0] == "Op19999"
    assert most < 50 << 20


# -- what limits a pipeline ------------------------------------------------------------------------


CAPACITY = 10


def operations(parents: list[int], sizes: list[list[int] | None]) -> PipelineOperations:
    """Operations 0 to n, each with its parent and what its queue held."""
    return PipelineOperations.of(
        len(parents),
        {
            "op": range(len(parents)),
            "parent": parents,
            "samples": [NO_ID if one is None else len(one) for one in sizes],
            "capacity": [NO_ID if one is None else CAPACITY for one in sizes],
            "total_size": [sum(one or []) for one in sizes],
        },
    )


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[int], list[list[int] | None]]:
    """Trees of any form, of which the root may have no queue."""
    count = draw(st.integers(1, 8))
    parents = [NO_ID, *(draw(st.integers(0, op - 1)) for op in range(1, count))]
    queue = st.lists(st.integers(0, CAPACITY), min_size=1, max_size=3)
    root = draw(queue | st.none())
    return parents, [root, *(draw(queue) for _ in range(count - 1))]


@given(made=pipelines())
def test_operations_are_named_by_the_rules(made: tuple[list[int], list[list[int] | None]]) -> None:
    """Fuller input, slow source and slow sink, each exactly where its inequality holds.

    It is MindInsight's, of floating-point numbers: by how much 23 / 30 exceeds 20 / 30 depends on
    the order of the divisions.
    """
    parents, sizes = made
    use = [0.0 if one is None else sum(one) / len(one) / CAPACITY for one in sizes]
    children = {op: [at for at, parent in enumerate(parents) if parent == op] for op in range(9)}
    fuller = {
        op for op in range(1, len(use)) if any(use[child] - use[op] > 0.1 for child in children[op])
    }
    slow = {op for op in range(len(use)) if not children[op] and use[op] < 0.6}
    expected = dict.fromkeys(slow, Limit.SLOW_SOURCE) | dict.fromkeys(fuller, Limit.FULLER_INPUT)
    if all(one >= 0.8 for one in use[1:]):
        expected = {0: Limit.SLOW_SINK}
    assert pipeline_limits(operations(parents, sizes)) == expected


@pytest.mark.parametrize(
    ("sizes", "named"),
    [
        ([[5], [8], [8]], {0: Limit.SLOW_SINK}),
        ([[5], [7], [7]], {}),
        ([None, [0], [5]], {1: Limit.FULLER_INPUT, 2: Limit.SLOW_SOURCE}),
        ([[10], [5], [6]], {}),
        ([[0], [9], [10]], {0: Limit.SLOW_SINK}),
    ],
)
def test_a_chain(sizes: list[list[int] | None], named: dict[int, Limit]) -> None:
    """The root is never named for a fuller input; a source at the threshold is fast enough."""
    assert pipeline_limits(operations([NO_ID, 0, 1], sizes)) == named


# -- scopes ----------------------------------------------------------------------------------------


Links = Mapping[tuple[str, str], int]


def rows(links: Links) -> Table:
    pairs = list(links)
    return Table(
        {
            "parent": np.array([parent for parent, _ in pairs], object),
            "name": np.array([name for _, name in pairs], object),
            "flop": np.array([links[pair] for pair in pairs], np.int64),
        }
    )


def tree_of(links: Links, most: int = 1000) -> ScopeNode:
    tree = scope_tree(rows(links), most)
    assert tree is not None
    return tree


@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), st.integers(0, 10**6)),
        min_size=1,
    )
)
def test_what_scopes_do_themselves_is_all_work(operators: list[tuple[list[str], int]]) -> None:
    """Of operators in scopes of one place each: sums of what scopes do themselves are the total."""
    links: dict[tuple[str, str], int] = {}
    operators = [(scopes, flop * 10**6) for scopes, flop in operators]
    for scopes, flop in operators:
        path = [ROOT, *("/".join(scopes[: at + 1]) for at in range(len(scopes)))]
        for parent, name in itertools.pairwise(path):
            links[parent, name] = links.get((parent, name), 0) + flop
    tree = tree_of(links)
    assert tree.flop == sum(flop for _, flop in operators)
    assert sum(node.own_flop or 0 for node in tree.walk()) == tree.flop
    assert len(list(tree.walk())) == len(links) + 1
    for node in tree.walk():
        assert (node.own_flop or 0) + sum(child.flop for child in node.children) == node.flop
        assert [child.flop for child in node.children] == sorted(
            (child.flop for child in node.children), reverse=True
        )


NAMES = st.sampled_from([ROOT, *"abcdef"])


@given(
    st.dictionaries(st.tuples(NAMES, NAMES), st.integers(0, 100), min_size=1), st.integers(1, 10)
)
def test_any_links_make_a_tree(links: dict[tuple[str, str], int], most: int) -> None:
    """Also those of a damaged file, that lead in circles; no more scopes than asked for."""
    tree = scope_tree(rows(links), most)
    if tree is None:
        return
    nodes = list(tree.walk())
    assert len(nodes) <= most + 1
    assert all(node.left_out >= 0 and (node.own_flop or 0) >= 0 for node in nodes)


def test_a_scope_in_several_others_is_opened_once() -> None:
    """In the one where most is done; at other places it is said where."""
    tree = tree_of(
        {
            (ROOT, "a(Default)"): 30_000,
            (ROOT, "b(Default)"): 11_000,
            ("a(Default)", "x(2_Default)"): 20_000,
            ("b(Default)", "x(2_Default)"): 10_000,
            ("x(2_Default)", "y(3_Default)"): 25_000,
        }
    )
    nodes = {(node.name, node.flop): node for node in tree.walk()}
    assert {name for name, _ in nodes} == {ROOT, "a", "b", "x", "y"}
    here, there = nodes["x", 20_000], nodes["x", 10_000]
    assert [child.name for child in here.children] == ["y"]
    assert (here.places, here.elsewhere, here.own_flop) == (2, "", None)
    assert (there.children, there.elsewhere, there.own_flop) == ((), "a", None)
    assert nodes["a", 30_000].own_flop == 10_000
    assert nodes["b", 11_000].own_flop == 0  # so much may be rounded


def test_the_largest_scopes_are_told_below_those_around_them() -> None:
    """What is left out is counted where it lies."""
    tree = tree_of({(ROOT, "a"): 9, ("a", "b"): 9, ("a", "c"): 1, (ROOT, "d"): 3}, most=2)
    assert [(node.name, node.left_out) for node in tree.walk()] == [(ROOT, 1), ("a", 1), ("b", 0)]


def test_scopes_within_each_other_end_somewhere() -> None:
    """A chain of 10,000 is cut where nobody looks any more."""
    chain = [ROOT, *map(str, range(10_000))]
    tree = tree_of(dict.fromkeys(itertools.pairwise(chain), 1), most=20_000)
    assert len(list(tree.walk())) == MOST_DEPTH + 1


def test_scopes_are_told_of_names_where_no_file_does() -> None:
    """Operators of both units count; those in no scope are in none."""
    names = ["Default/net/a/Conv-op1", "Default/net/a/Conv-op1", "Default/net/b/Mul-op2", "Add-op3"]
    flop = np.array([3_000_000, 1_000_000, 2_000_000, 9])
    tree = scope_tree(operator_scopes(Table({"name": np.array(names, object), "flop": flop})), 9)
    assert tree is not None
    assert [(node.name, node.flop, node.own_flop) for node in tree.walk()] == [
        (ROOT, 6_000_000, 0),
        ("Default", 6_000_000, 0),
        ("net", 6_000_000, 0),
        ("a", 4_000_000, 4_000_000),
        ("b", 2_000_000, 2_000_000),
    ]


def test_a_scope_in_many_others_takes_no_longer_than_many_scopes() -> None:
    """What lies in 20,000 scopes is not looked for again from each of them."""
    links = {(ROOT, f"s{at}"): 2 for at in range(20_000)}
    links |= {(f"s{at}", "shared"): 1 for at in range(20_000)}
    began = time.process_time()
    tree = tree_of(links, most=10)
    assert time.process_time() - began < 5
    assert tree.left_out == 20_000 - 10


def test_names_of_any_depth_are_scopes_only_so_far_as_they_are_told() -> None:
    """A name of 100,000 parts makes no path of each."""
    operators = Table({"name": np.array(["a/" * 100_000], object), "flop": np.array([1_000])})
    scopes = operator_scopes(operators)
    assert len(scopes) == MOST_DEPTH + 1
    tree = scope_tree(scopes, 1_000)
    assert tree is not None
    assert [node.left_out for node in tree.walk()] == [0] * MOST_DEPTH + [1]
