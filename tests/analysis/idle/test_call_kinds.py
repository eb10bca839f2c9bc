"""Proves that calls are told by their names, whatever the size of letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from timeline.analysis.idle.host_calls import (
    fetching_names,
    names_waiting_for_data,
    names_waiting_for_device,
)
from timeline.columns.columns import Codes
from timeline.columns.strings import ExtendedPool, StringPool

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
    codes_of: Callable[[StringPool], Codes],
    wanted: Sequence[str],
    spelled: Callable[[str], str],
) -> None:
    """Each of those that it is about is found, and no other one, in order of codes."""
    names = [*OTHERS, *FETCHING, *WAITING_FOR_DATA, *WAITING_FOR_DEVICE]
    pool = StringPool()
    pool.codes(map(spelled, names[:12]))
    pool = ExtendedPool(pool, list(map(spelled, names[12:])))
    found = codes_of(pool)
    assert [pool[code] for code in found.tolist()] == [spelled(name) for name in wanted]
