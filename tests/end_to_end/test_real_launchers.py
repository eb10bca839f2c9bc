"""Proves on real captures that device time by launching operator is what their profilers say."""

from __future__ import annotations

import csv
import sys
from collections import Counter, defaultdict

import numpy as np
import pytest

from tests.support.places import real_capture
from timeline.profile import open_profile
from timeline.tables.table import Table

TEXT, DATABASE = "torch-npu-text", "torch-npu-db"
COPYING = {"aclnnInplaceCopy", "ReduceSum", "aclnnDropoutGenMaskV2"}
"""Operators that also copied or filled memory, which is no computing, and is in the vendor's
times."""


def _by(table: Table, *names: str) -> Counter[tuple[object, ...]]:
    """The summed time of computing by some columns."""
    found: Counter[tuple[object, ...]] = Counter()
    columns = [table[name].tolist() for name in (*names, "communication", "total_ns")]
    for *key, communication, total_ns in zip(*columns, strict=True):
        if not communication:
            found[tuple(key)] += total_ns
    return found


@pytest.mark.parametrize("rank", [0, 1])
def test_times_of_operators_are_those_of_operator_details(rank: int) -> None:
    """torch_npu's own Device Self Duration of each operator is the time of the innermost one."""
    profile = real_capture(TEXT)
    (path,) = profile.glob(f"rank{rank}*/ASCEND_PROFILER_OUTPUT/operator_details.csv")
    csv.field_size_limit(sys.maxsize // 2**33)
    theirs = defaultdict[str, float](float)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            theirs[row["Name"]] += float(row["Device Self Duration(us)"] or 0)
    with open_profile(profile) as opened:
        table = opened.operators(by="launch")
    own = _by(table.take(table["rank"] == rank), "operator")
    ours = {str(name): total_ns / 1000 for (name,), total_ns in own.items()}
    assert len(ours) > 30
    for name, total_us in ours.items():
        if name in COPYING:
            assert 0 < theirs[name] - total_us < 12
        else:
            assert total_us == pytest.approx(theirs[name], abs=0.005)


def test_numbers_of_autograd_join_what_the_trace_does_not() -> None:
    """A trace without arrows from forward to backward has the numbers that these are made of."""
    with open_profile(real_capture("gpu/dlrm_kineto.tar.gz")) as profile:
        table = profile.operators(by="module")
    backward = _by(table.take(table["phase"] == "backward"), "module")
    assert backward["## forward ##/DistributedDataParallel.forward",] > backward[None,] > 0


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("torch-npu-db-level0", 1.0),
        ("gpu/h100", 1.0),
        ("gpu/xdit_sd_3.5", 1.0),
        ("gpu/dlrm_kineto.tar.gz", 0.95),
        ("gpu/nccl_parser_config", 1.0),
        ("gpu/torch_compile_triton", 1.0),
        ("gpu/sglang_decode", 0.009),
        ("gpu/mi300/resnet_act_checkpoint.json.gz", 0.74),
    ],
)
@pytest.mark.filterwarnings("ignore:.*in the middle of the work")
def test_all_computing_is_in_the_tables_and_most_has_an_operator(name: str, known: float) -> None:
    """What a CUDA graph launched has no operator, nor has what was launched before recording."""
    with open_profile(real_capture(name)) as profile:
        types = profile.operators()
        launches, modules = profile.operators(by="launch"), profile.operators(by="module")
    for communication in (0, 1):
        totals = {
            int(table["total_ns"][table["communication"] == communication].sum())
            for table in (types, launches, modules)
        }
        assert len(totals) == 1
    computing = launches.take(launches["communication"] == 0)
    told = ~np.ma.getmaskarray(computing["operator"])
    share = computing["total_ns"][told].sum() / computing["total_ns"].sum()
    assert share == 1 if known == 1 else share >= known
