"""Proves which host calls wait for what, and which is the innermost of a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.random_intervals import Interval, columns_of, intervals
from timeline.analysis.idle import host_calls
from timeline.analysis.idle.host_calls import (
    Calls,
    fetching_names,
    names_waiting_for_data,
    names_waiting_for_device,
    split_by_call,
)
from timeline.columns.columns import Codes
from timeline.columns.strings import ExtendedPool, StringPool
from timeline.records.not_given import NO_ID

WAITING_FOR_DEVICE = (
    "aclrtSynchronizeStreamWithTimeout",
    "AscendCL@aclrtSynchroniseDevice",
    "syncStream",
    "aclrtMemcpy",
    "cudaMemcpy",
    "hipMemcpy",
    "aten::item",
    "aten::_local_scalar_dense",
)
WAITING_FOR_DATA = (
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "torch/utils/data/dataloader.py(625): __next__",
)
FETCHING = ("GetNext", "Default/GetNext-op12", "get_next")
OTHERS = (
    "",
    "aclrtMemcpyAsync",
    "cudaMemcpyAsync",
    "aten::items",
    "synchrotron",
    "enumerate(Loader)",
    "dataloader.py(12): __init__",
    "GetNextGrad",
    "next",
)


@pytest.mark.parametrize("spelled", [str, str.upper, str.lower, str.swapcase])
@pytest.mark.parametrize(
    ("codes_of", "wanted"),
    [
        (names_waiting_for_device, WAITING_FOR_DEVICE),
        (names_waiting_for_data, WAITING_FOR_DATA),
        (fetching_names, FETCHING),
    ],
)
def test_calls_are_told_by_their_names(
    codes_of: Callable[[StringPool], Codes], wanted: Sequence[str], spelled: Callable[[str], str]
) -> None:
    """Each of those that it is about is found, and no other one, in order of codes."""
    names = [*OTHERS, *FETCHING, *WAITING_FOR_DATA, *WAITING_FOR_DEVICE]
    pool = StringPool()
    pool.codes(map(spelled, names[:12]))
    pool = ExtendedPool(pool, list(map(spelled, names[12:])))
    found = codes_of(pool)
    assert [pool[code] for code in found.tolist()] == [spelled(name) for name in wanted]


def innermost_at(calls: Sequence[Interval], moment_ns: int) -> Interval | None:
    """Of the calls that are open the one that began last, the shorter one of two."""
    found = [call for call in calls if call[0] <= moment_ns < call[1]]
    return max(found, key=lambda call: (call[0], -call[1]), default=None)


def calls_of(pairs: Sequence[Interval]) -> Calls:
    start_ns, end_ns = columns_of(pairs)
    return Calls(start_ns, end_ns, np.arange(len(pairs)) + 100)


@pytest.mark.parametrize("window", [1, 3, 1 << 16])
@given(calls=intervals(), stretches=intervals())
def test_each_moment_of_each_stretch_has_its_innermost_call(
    window: int, calls: list[Interval], stretches: list[Interval]
) -> None:
    """Parts tile every stretch, and name the call, however many calls are looked at together."""
    stretches = [pair for pair in stretches if pair[1] > pair[0]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host_calls, "WINDOW_CALLS", window)
        found = list(split_by_call(calls_of(calls), *columns_of(stretches)))
    named: dict[tuple[int, int], int] = {}
    for one in found:
        parts = one.stretches
        for of, start_ns, end_ns, call in zip(
            parts.stretch.tolist(),
            parts.start_ns.tolist(),
            parts.end_ns.tolist(),
            parts.call.tolist(),
            strict=True,
        ):
            for moment_ns in range(start_ns, end_ns):
                assert (of, moment_ns) not in named
                named[of, moment_ns] = call
    wanted = {
        (of, moment_ns): innermost_at(calls, moment_ns)
        for of, (start_ns, end_ns) in enumerate(stretches)
        for moment_ns in range(start_ns, end_ns)
    }
    assert named.keys() == wanted.keys()
    for key, call in named.items():
        assert (None if call == NO_ID else calls[call - 100]) == wanted[key]


@given(calls=intervals(), stretches=intervals(), some=st.lists(st.booleans(), min_size=12))
def test_the_innermost_of_some_calls_is_told_apart(
    calls: list[Interval], stretches: list[Interval], some: list[bool]
) -> None:
    """Around the innermost call, which of some others is open."""
    stretches = [pair for pair in stretches if pair[1] > pair[0]]
    for one in split_by_call(calls_of(calls), *columns_of(stretches)):
        mask = np.array([some[row - 100] for row in one.calls.row.tolist()], np.bool_)
        chosen = [call for call, is_one in zip(calls, some, strict=False) if is_one]
        for start_ns, call in zip(
            one.stretches.start_ns.tolist(), one.innermost_of(mask).tolist(), strict=True
        ):
            wanted = innermost_at(chosen, start_ns)
            assert (None if call == NO_ID else calls[call - 100]) == wanted
