"""Proves that merging at a resolution keeps every sum, every long slice and every lane."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.coarse_reference import elements_of, expected_elements, is_kept, parents, thinned
from tests.support.examples import at_most
from tests.support.random_intervals import is_laminar
from tests.support.random_tracks import (
    COARSEST,
    flat_slices,
    nested_slices,
    resolutions,
    samples,
    some_slices,
    windows,
)
from timeline.columns import nesting
from timeline.columns.nesting import is_compiled
from timeline.columns.strings import StringPool
from timeline.fitting import coarsen as coarsening
from timeline.fitting.coarsen import EXACT, Resolution, as_coarse, coarsen, draw_coarse, thin
from timeline.layers import SliceKind
from timeline.tracks.model import MERGED, Arg, ArgKind, Coarse, Samples, Slices

ALL_LEVELS = tuple(range(COARSEST + 1))


def merged_at(slices: Slices, *resolutions: Resolution) -> Coarse:
    """The elements after merging at each resolution in turn."""
    coarse = as_coarse(slices)
    for resolution in resolutions:
        coarse = coarsen(coarse, slices, resolution)
    return coarse


# -- the whole result --------------------------------------------------------------------------


@given(st.data(), some_slices())
def test_merging_follows_the_rule(data: st.DataObject, slices: Slices) -> None:
    """Intervals, rows, sums, names and nesting equal those of a slow walk over the siblings."""
    resolution = data.draw(resolutions(slices=slices))
    found = elements_of(merged_at(slices, resolution), slices)
    wanted = expected_elements(slices, resolution)
    if slices.nested:  # any order will do, as long as what is around what stays
        assert Counter(found) == Counter(wanted)
    else:
        assert found == wanted


# -- conservation ------------------------------------------------------------------------------


@given(some_slices())
@settings(max_examples=at_most(50))
def test_count_and_busy_time_are_kept_at_every_power(slices: Slices) -> None:
    length_ns = slices.end_ns - slices.start_ns
    wanted = sums_by_name(slices.name, np.ones(len(slices), np.int64), length_ns)
    for level in ALL_LEVELS:
        coarse = merged_at(slices, Resolution(level))
        assert int(coarse.count.sum()) == len(slices)
        assert int(coarse.busy_ns.sum()) == int(length_ns.sum())
        alone = coarse.row[coarse.row != MERGED]
        exact = sums_by_name(slices.name[alone], np.ones(len(alone), np.int64), length_ns[alone])
        merged = sums_by_name(coarse.name, coarse.name_count, coarse.name_busy_ns)
        assert added(exact, merged) == wanted


Sums = dict[int, tuple[int, int]]


def sums_by_name(names: np.ndarray, count: np.ndarray, busy_ns: np.ndarray) -> Sums:
    found: Sums = {}
    for name, one, busy in zip(names.tolist(), count.tolist(), busy_ns.tolist(), strict=True):
        found = added(found, {name: (one, busy)})
    return found


def added(one: Sums, other: Sums) -> Sums:
    """Count and busy time of each name in both."""
    both = one.keys() | other.keys()
    return {
        name: (
            one.get(name, (0, 0))[0] + other.get(name, (0, 0))[0],
            one.get(name, (0, 0))[1] + other.get(name, (0, 0))[1],
        )
        for name in both
    }


@given(st.data(), some_slices())
def test_each_name_of_an_element_is_told_once_and_in_order(
    data: st.DataObject, slices: Slices
) -> None:
    """The pairs ascend by owner, then name; they add up to their element's own sums."""
    coarse = merged_at(slices, data.draw(resolutions(slices=slices)))
    pairs = list(zip(coarse.owner.tolist(), coarse.name.tolist(), strict=True))
    assert pairs == sorted(set(pairs))
    merged = coarse.row == MERGED
    count, busy = (
        np.bincount(coarse.owner, weights, minlength=len(coarse))
        for weights in (coarse.name_count, coarse.name_busy_ns)
    )
    assert count.tolist() == np.where(merged, coarse.count, 0).tolist()
    assert busy.tolist() == np.where(merged, coarse.busy_ns, 0).tolist()


# -- exactness ---------------------------------------------------------------------------------


@given(st.data(), some_slices())
def test_long_slices_stay_themselves(data: st.DataObject, slices: Slices) -> None:
    """Every slice of a bin's width or more, in no shorter one, has its interval, name and args."""
    resolution = data.draw(resolutions(slices=slices))
    coarse = merged_at(slices, resolution)
    picture = draw_coarse(coarse, slices)
    place = {row: at for at, row in enumerate(coarse.row.tolist()) if row != MERGED}
    around = around_each(slices)
    for row in range(len(slices)):
        if all(is_long(slices, one, resolution) for one in (row, *around[row])):
            assert row in place
    for row, at in place.items():
        assert slice_at(picture, at) == slice_at(slices, row)
        length_ns = slices.end_ns[row] - slices.start_ns[row]
        assert (coarse.count[at], coarse.busy_ns[at]) == (1, length_ns)


def is_long(slices: Slices, row: int, resolution: Resolution) -> bool:
    start_ns, end_ns = int(slices.start_ns[row]), int(slices.end_ns[row])
    kept = resolution.exact or is_kept(resolution, start_ns, end_ns)
    return kept or end_ns - start_ns >= 1 << resolution.level


def around_each(slices: Slices) -> list[list[int]]:
    """The rows of all slices around each slice."""
    if not slices.nested:
        return [[] for _ in range(len(slices))]
    above = parents(slices.start_ns.tolist(), slices.end_ns.tolist())

    def way(row: int) -> list[int]:
        return [] if above[row] < 0 else [above[row], *way(above[row])]

    return [way(row) for row in range(len(slices))]


def slice_at(slices: Slices, row: int) -> tuple[int, int, str, dict[str, int]]:
    """Interval, name and args of one slice."""
    return (
        int(slices.start_ns[row]),
        int(slices.end_ns[row]),
        slices.strings[int(slices.name[row])],
        {arg.name: int(arg.values[row]) for arg in slices.args if arg.present[row]},
    )


@given(some_slices())
@settings(max_examples=at_most(50))
def test_the_exact_resolution_changes_nothing(slices: Slices) -> None:
    coarse = merged_at(slices, Resolution(EXACT))
    assert coarse.row.tolist() == list(range(len(slices)))
    assert draw_coarse(coarse, slices) is slices


def test_a_short_slice_alone_stays_itself() -> None:
    """Two short slices in neighbouring bins, and one between long ones, are not merged."""
    slices = made_slices([(6, 8), (8, 10), (16, 40), (41, 42), (48, 80)])
    coarse = merged_at(slices, Resolution(3))
    assert coarse.row.tolist() == [0, 1, 2, 3, 4]


def test_a_longer_slice_keeps_short_ones_apart() -> None:
    """Short ones of one bin on either side of it stay two, and nothing spans it."""
    slices = made_slices([(1, 2), (3, 4), (5, 16), (16, 17), (18, 19), (20, 21)])
    assert elements(merged_at(slices, Resolution(3))) == [
        (1, 4, MERGED),
        (5, 16, 2),
        (16, 21, MERGED),
    ]
    inside_one_bin = made_slices([(0, 1), (2, 3), (4, 12), (12, 13), (14, 15)])
    assert elements(merged_at(inside_one_bin, Resolution(3))) == [
        (0, 3, MERGED),
        (4, 12, 2),
        (12, 15, MERGED),
    ]


def elements(coarse: Coarse) -> list[tuple[int, int, int]]:
    return list(
        zip(coarse.start_ns.tolist(), coarse.end_ns.tolist(), coarse.row.tolist(), strict=True)
    )


def elements_with_sums(coarse: Coarse) -> list[tuple[int, ...]]:
    """The interval of each element, how many slices it stands for and their summed length."""
    columns = (coarse.start_ns, coarse.end_ns, coarse.count, coarse.busy_ns)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def made_slices(
    pairs: Sequence[tuple[int, int]],
    names: Sequence[str] = (),
    *,
    nested: bool = False,
    kind: SliceKind = SliceKind.TASK,
) -> Slices:
    """Slices of the given intervals."""
    strings = StringPool()
    start_ns, end_ns = (np.array(edge, np.int64) for edge in zip(*pairs, strict=True))
    codes = strings.codes(names or ["MatMul"] * len(pairs))
    return Slices(start_ns, end_ns, codes, strings, kind, nested=nested)


# -- merged elements -------------------------------------------------------------------------


@given(st.data(), some_slices())
def test_a_merged_element_starts_in_one_bin_and_is_shorter_than_two(
    data: st.DataObject, slices: Slices
) -> None:
    """Its ends are those of its first and last member, and no longer slice lies in between."""
    resolution = data.draw(resolutions(slices=slices))
    coarse = merged_at(slices, resolution)
    starts, ends = set(slices.start_ns.tolist()), set(slices.end_ns.tolist())
    exact = coarse.row[coarse.row != MERGED]
    for at in np.flatnonzero(coarse.row == MERGED).tolist():
        start_ns, end_ns = int(coarse.start_ns[at]), int(coarse.end_ns[at])
        assert start_ns in starts
        assert end_ns in ends
        assert end_ns - start_ns < 2 << resolution.level
        assert not is_kept(resolution, start_ns, end_ns), "nothing is merged in or across a window"
        spanned = [
            row
            for row in exact.tolist()
            if start_ns < slices.start_ns[row] and slices.end_ns[row] < end_ns
        ]
        assert not spanned, "a slice that was not merged lies inside a merged one"


@given(flat_slices())
def test_elements_of_a_flat_lane_do_not_overlap(slices: Slices) -> None:
    for level in ALL_LEVELS:
        coarse = merged_at(slices, Resolution(level))
        assert (coarse.start_ns[1:] >= coarse.end_ns[:-1]).all()


@given(nested_slices())
def test_elements_of_a_nested_lane_do_not_cross(slices: Slices) -> None:
    for level in (*range(12), COARSEST):
        coarse = merged_at(slices, Resolution(level))
        assert is_laminar(list(zip(coarse.start_ns.tolist(), coarse.end_ns.tolist(), strict=True)))


def test_of_equal_slices_the_outer_one_stays_outside() -> None:
    """A long slice and the short ones that fill it have the same ends; the long one is around."""
    slices = made_slices([(8, 12), (12, 18), (8, 18)], ["inner", "inner", "outer"], nested=True)
    coarse = merged_at(slices, Resolution(3))
    found = elements_of(coarse, slices)
    assert [(one.row, one.outer and one.outer.row) for one in found] == [(2, None), (MERGED, 2)]
    both = merged_at(slices, Resolution(3), Resolution(4))
    assert elements(both) == [(8, 18, MERGED)]
    assert both.count.tolist() == [3]


# -- composition -------------------------------------------------------------------------------


@given(st.data(), some_slices(), resolutions(), resolutions())
def test_merging_twice_is_merging_once(
    data: st.DataObject, slices: Slices, one: Resolution, other: Resolution
) -> None:
    """All columns, names included: what lets ranks be merged apart and joined later."""
    finer, coarser = sorted((one, other), key=lambda resolution: resolution.level)
    kept = data.draw(resolutions(slices=slices)).exact_ns
    finer, coarser = replace(finer, exact_ns=kept), replace(coarser, exact_ns=kept)
    same_columns(merged_at(slices, finer, coarser), merged_at(slices, coarser))


def same_columns(one: Coarse, other: Coarse) -> None:
    for field in fields(Coarse):
        assert getattr(one, field.name).tolist() == getattr(other, field.name).tolist(), field.name


@given(some_slices())
@settings(max_examples=at_most(30))
def test_merging_step_by_step_is_merging_once(slices: Slices) -> None:
    """Through all levels in turn."""
    coarse = as_coarse(slices)
    for level in ALL_LEVELS:
        coarse = coarsen(coarse, slices, Resolution(level))
        same_columns(coarse, merged_at(slices, Resolution(level)))


@given(st.data(), samples())
def test_thinning_twice_is_thinning_once(data: st.DataObject, counter: Samples) -> None:
    finer, coarser = sorted(
        (data.draw(resolutions()), data.draw(resolutions())), key=lambda one: one.level
    )
    twice, once = thin(thin(counter, finer), coarser), thin(counter, coarser)
    assert pairs_of(twice) == pairs_of(once)


# -- the compiled module -----------------------------------------------------------------------


compiled = pytest.mark.skipif(not is_compiled(), reason="the package was built without a compiler")


@compiled
@given(st.data(), some_slices(), st.integers(1, 30))
def test_merging_is_the_same_without_the_compiled_modules(
    data: st.DataObject, slices: Slices, least: int
) -> None:
    """Slices of any kind, merged twice, in pieces between which nothing is open, and drawn."""
    chosen = sorted(
        (data.draw(resolutions(slices=slices)) for _ in range(2)), key=lambda one: one.level
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting.split_at_gaps, "__defaults__", (least,))
        fast = merged_at(slices, *chosen)
        drawn = draw_coarse(fast, slices)
        patch.setattr(coarsening, "groups_by_stack", None)
        slow = merged_at(slices, *chosen)
        same_columns(fast, slow)
        again = draw_coarse(slow, slices)
    assert [slice_at(drawn, at) for at in range(len(drawn))] == [
        slice_at(again, at) for at in range(len(again))
    ]


@pytest.mark.parametrize("level", [1, 10, 40])
def test_a_deep_chain_is_merged_as_fast_as_a_flat_row(level: int) -> None:
    """Each call in the one before: all that are short are one, in the innermost that is not."""
    count = 200_000
    start_ns = np.arange(count)
    slices = Slices(
        start_ns,
        2 * count - start_ns,
        np.zeros(count, np.int32),
        StringPool(),
        SliceKind.HOST_CALL,
        nested=True,
    )
    long = int(np.count_nonzero(slices.end_ns - slices.start_ns >= 1 << level))
    coarse = merged_at(slices, Resolution(level))
    assert coarse.count.tolist() == [1] * long + [count - long] * (long < count)


# -- exact windows -----------------------------------------------------------------------------


@given(st.data(), some_slices(), st.integers(1, 9))
def test_all_that_overlaps_a_window_is_exact(
    data: st.DataObject, slices: Slices, level: int
) -> None:
    """Whatever its length; so is what is around it, and no arrow of it is lost."""
    resolution = replace(data.draw(resolutions(slices=slices)), level=level)
    alone = set(merged_at(slices, resolution).row.tolist())
    for row, (start_ns, end_ns) in enumerate(
        zip(slices.start_ns.tolist(), slices.end_ns.tolist(), strict=True)
    ):
        if is_kept(resolution, start_ns, end_ns):
            assert row in alone


@given(st.data(), some_slices(), st.integers(1, 9))
def test_what_was_merged_before_stays_merged_in_a_window(
    data: st.DataObject, slices: Slices, level: int
) -> None:
    """Nothing is added to it, and sums and names stay."""
    before = merged_at(slices, Resolution(level))
    resolution = replace(data.draw(resolutions(slices=slices)), level=level + 1)
    after = coarsen(before, slices, resolution)
    wanted = Counter(
        one for one in elements_with_sums(before) if is_kept(resolution, one[0], one[1])
    )
    assert wanted <= Counter(elements_with_sums(after))
    assert int(after.count.sum()) == len(slices)


@pytest.mark.parametrize("nested", [False, True])
def test_an_exact_part_merges_nothing(nested: bool) -> None:
    """Not even slices without length at one moment, which are shorter than any bin."""
    slices = made_slices([(5, 5), (5, 5), (6, 7), (20, 20), (20, 20)], nested=nested)
    coarse = merged_at(slices, Resolution(4, ((0, 10),)))
    assert coarse.row.tolist() == [0, 1, 2, MERGED]


@pytest.mark.parametrize("nested", [False, True])
def test_nothing_is_merged_across_a_window_in_which_nothing_lies(nested: bool) -> None:
    slices = made_slices([(0, 1), (2, 3), (8, 9), (10, 11)], nested=nested)
    coarse = merged_at(slices, Resolution(10, ((4, 6),)))
    assert elements(coarse) == [(0, 3, MERGED), (8, 11, MERGED)]
    counter = Samples(np.array([0, 1, 2, 8, 9, 10]), np.array([1.0, 2, 3, 3, 2, 1]), "MB")
    assert thin(counter, Resolution(10, ((4, 6),))).time_ns.tolist() == [0, 2, 8, 10]


# -- counters ----------------------------------------------------------------------------------


@given(st.data(), samples())
def test_thinning_keeps_the_least_and_the_greatest_of_each_bin(
    data: st.DataObject, counter: Samples
) -> None:
    """With their own times; of equal values the first; in windows all of them."""
    resolution = data.draw(resolutions())
    if len(counter):
        first, last = int(counter.time_ns[0]), int(counter.time_ns[-1])
        resolution = replace(resolution, exact_ns=data.draw(windows(first, last)))
    thinner = thin(counter, resolution)
    assert pairs_of(thinner) == thinned(counter, resolution)
    assert thinner.unit == counter.unit


def pairs_of(counter: Samples) -> list[tuple[int, float]]:
    return list(zip(counter.time_ns.tolist(), counter.value.tolist(), strict=True))


# -- what is drawn -----------------------------------------------------------------------------


@given(st.data(), some_slices())
def test_a_merged_slice_tells_what_it_stands_for(data: st.DataObject, slices: Slices) -> None:
    """Label, count, busy time, and the top names with their shares; none of the args it had."""
    resolution = data.draw(resolutions(slices=slices))
    coarse = merged_at(slices, resolution)
    picture = draw_coarse(coarse, slices)
    for at, element in enumerate(elements_of(coarse, slices)):
        if element.row != MERGED:
            continue
        _, _, label, args = slice_at(picture, at)
        busy = {name: one for name, _, one in element.names}
        count, _, leading = label.partition(" tasks: ")
        assert int(count) == args.pop("count") == element.count
        assert args.pop("busy_ns") == element.busy_ns
        assert busy[leading] == max(busy.values()), "named by what took most time"
        told = min(3, len(busy))
        names = [picture.strings[args.pop(f"top_{place + 1}")] for place in range(told)]
        shares = [args.pop(f"top_{place + 1}_percent") for place in range(told)]
        assert names[0] == leading
        assert len(set(names)) == told
        assert [busy[name] for name in names] == sorted(busy.values(), reverse=True)[:told]
        assert shares == [busy[name] * 100 // max(1, element.busy_ns) for name in names]
        assert not args, "an arg of one slice says nothing of several"


@given(st.data(), some_slices())
def test_arrows_touch_only_exact_slices(data: st.DataObject, slices: Slices) -> None:
    """Those of merged ones are gone, the others are where their slice went."""
    coarse = merged_at(slices, data.draw(resolutions(slices=slices)))
    picture = draw_coarse(coarse, slices)
    place = {row: at for at, row in enumerate(coarse.row.tolist()) if row != MERGED}
    assert sorted(
        zip(picture.arrows.slice.tolist(), picture.arrows.arrow.tolist(), strict=True)
    ) == (
        sorted(
            (place[row], arrow)
            for row, arrow in zip(
                slices.arrows.slice.tolist(), slices.arrows.arrow.tolist(), strict=True
            )
            if row in place
        )
    )
    assert (np.diff(picture.arrows.slice) >= 0).all()


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (SliceKind.TASK, "4 tasks: MatMul"),
        (SliceKind.HCCL_TASK, "4 tasks: MatMul"),
        (SliceKind.COMMUNICATION_OP, "4 ops: MatMul"),
        (SliceKind.HOST_CALL, "4 calls: MatMul"),
        (SliceKind.STEP, "4 steps: MatMul"),
        (SliceKind.OVERLAP, "4 pieces: MatMul"),
        (SliceKind.SCOPE, "4 scopes: MatMul"),
        (SliceKind.NOTE, "4 notes: MatMul"),
    ],
)
def test_a_merged_slice_says_what_it_counts(kind: SliceKind, label: str) -> None:
    """Three short Adds take less time than one MatMul; then time decides, not number."""
    slices = made_slices(
        [(0, 1), (2, 3), (3, 8), (9, 10)], ["Add", "Add", "MatMul", "Add"], kind=kind
    )
    picture = draw_coarse(merged_at(slices, Resolution(5)), slices)
    assert [picture.strings[code] for code in picture.name.tolist()] == [label]
    args = {arg.name: arg for arg in picture.args}
    assert {name: int(arg.values[0]) for name, arg in args.items() if name[-1] not in "123"} == {
        "count": 4,
        "busy_ns": 8,
        "top_1_percent": 62,
        "top_2_percent": 37,
        "top_3_percent": 0,
    }
    assert args["top_3"].present.tolist() == args["top_3_percent"].present.tolist() == [False]


def test_merged_args_are_default_args() -> None:
    """They are drawn unless no args are asked for: without them the sums would be lost."""
    slices = made_slices([(0, 1), (2, 3)])
    graph = Arg(
        "graph", ArgKind.INTEGER, np.zeros(2, np.int64), np.ones(2, np.bool_), default=False
    )
    picture = draw_coarse(merged_at(replace(slices, args=(graph,)), Resolution(4)), slices)
    assert all(arg.default for arg in picture.args if arg.name != "graph")


@given(st.data(), some_slices())
@settings(max_examples=at_most(30))
def test_labels_are_in_a_pool_of_their_own(data: st.DataObject, slices: Slices) -> None:
    """So tracks that share one may be drawn at once; what is drawn can be merged again."""
    before = list(slices.strings)
    fine, coarse = sorted(data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9))))
    once = draw_coarse(merged_at(slices, Resolution(fine)), slices)
    assert list(slices.strings) == before
    assert (once.strings is slices.strings) == (len(once) == len(slices))
    again = draw_coarse(coarsen(as_coarse(once), once, Resolution(coarse)), once)
    wanted = draw_coarse(merged_at(slices, Resolution(coarse)), slices)
    assert [slice_at(again, at) for at in range(len(again))] == [
        slice_at(wanted, at) for at in range(len(wanted))
    ]
