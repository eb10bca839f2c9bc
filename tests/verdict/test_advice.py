"""Proves that advice on clusters is given by its formulas, for what is furthest from its mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timeline.tables.flops import FLOPS
from timeline.tables.parallel import PARALLEL, PARALLEL_TIMES, STEP_TRACE
from timeline.tables.table import Spec, Table
from timeline.tables.waits import LINKS
from timeline.verdict.advice import (
    ABOUT_DATA,
    ADVICE,
    COMMUNICATING,
    FROM_MEAN,
    STEP_INTERVAL,
    mean_rows,
)
from timeline.verdict.figures import Figures

Row = dict[str, Any]


def table(spec: Spec, rows: Sequence[Row]) -> Table:
    return spec.of_rows([row.get(name) for name in spec.kinds] for row in rows)


def advise(
    step_trace: Sequence[Row] = (),
    flops: Sequence[Row] = (),
    links: Sequence[Row] = (),
    parallel: Sequence[Row] = (),
    times: Sequence[Row] = (),
) -> list[Row]:
    """The advice on clusters, the worst first, without what is not known."""
    figures = Figures(
        {
            "step_trace": table(STEP_TRACE, step_trace),
            "flops": table(FLOPS, flops),
            "links": table(LINKS, links),
            "parallel": table(PARALLEL, parallel),
            "parallel_times": table(PARALLEL_TIMES, times),
        }
    )
    rows = ADVICE.of_run(figures).to_dicts()
    return [
        {name: value for name, value in row.items() if value is not None}
        for row in rows
        if row["about"] not in (*ABOUT_DATA, STEP_INTERVAL)
    ]


def intervals(*lengths_ns: int, of: str | None = "file") -> list[Row]:
    return [{"rank": at, "of": of, "interval_ns": one} for at, one in enumerate(lengths_ns)]


def link(
    rank: int, source: int, target: int, size: int, kind: str = "SDMA", total_ns: int = 1000
) -> Row:
    return {
        "rank": rank,
        "source_rank": source,
        "target_rank": target,
        "link": kind,
        "size_bytes": size,
        "total_ns": total_ns,
        "bandwidth_gb_s": size / total_ns,
        "numbered_in": "group",
    }


def split(mode: str, stages: int, ranks: int) -> Row:
    per_stage = ranks // stages
    held = [list(range(first, first + per_stage)) for first in range(0, ranks, per_stage)]
    return {"mode": mode, "stages": stages, "ranks": ranks, "stage_ranks": held}


times_ns = st.integers(0, 10**9)


def furthest(shares: Sequence[float]) -> list[tuple[int, float]]:
    """The first of those furthest from the mean, if far enough: position, share."""
    share = max(shares, default=0.0)
    return [(shares.index(share), share)] if share > FROM_MEAN else []


@given(st.lists(times_ns, max_size=12))
def test_the_rank_with_the_longest_interval_is_told(lengths_ns: list[int]) -> None:
    """It alone, and only where interval / mean - 1 is above 0.2."""
    found = advise(step_trace=intervals(*lengths_ns))
    mean = sum(lengths_ns) / max(len(lengths_ns), 1)
    expected = furthest([one / mean - 1 for one in lengths_ns if mean])
    assert [(row["rank"], row["share"]) for row in found] == expected
    assert all(row["mean"] == mean for row in found)


@given(st.lists(st.integers(1, 10**6), max_size=12))
def test_the_rank_that_computes_slowest_is_told(rates: list[int]) -> None:
    """It alone, and only where (mean - FLOP/s) / mean is above 0.2."""
    rows = [
        {"rank": rank, "level": "rank", "unit": "all", "flop_per_s": rate}
        for rank, rate in enumerate(rates)
    ]
    found = advise(flops=[*rows, {"rank": 0, "level": "operator", "unit": "all", "flop_per_s": 1}])
    mean = sum(rates) / max(len(rates), 1)
    expected = furthest([(mean - one) / mean for one in rates])
    assert [(row["rank"], row["share"]) for row in found] == expected


@given(
    st.lists(
        st.tuples(st.integers(1, 10**6), st.booleans(), st.sampled_from([1_000, 1_000_000])),
        max_size=12,
    )
)
def test_the_slowest_link_of_each_kind_is_told(links: list[tuple[int, bool, int]]) -> None:
    """Kinds are not compared with each other, nor what moves much less, nor a rank with itself."""
    rows = [
        link(at, 0, 1, size, "RDMA" if far else "SDMA", total_ns)
        for at, (total_ns, far, size) in enumerate(links)
    ]
    alone = [link(at, 1, 1, 1) for at in range(3)]
    still = [link(7, 1, 0, 0)]
    found = advise(links=[*rows, *alone, *still])
    expected = set[tuple[str, int, float]]()
    for kind in ("RDMA", "SDMA"):
        its = [row for row in rows if row["link"] == kind]
        most = max((row["size_bytes"] for row in its), default=0)
        alike = [row for row in its if row["size_bytes"] == most]
        speeds = [row["bandwidth_gb_s"] for row in alike]
        mean = sum(speeds) / max(len(speeds), 1)
        for at, share in furthest([(mean - speed) / mean for speed in speeds]):
            expected.add((kind, alike[at]["rank"], share))
    assert {(row["link"], row["rank"], row["share"]) for row in found} == expected
    assert len(found) == len(expected)


def test_of_several_far_stages_the_fullest_alone_is_told() -> None:
    """Two of five stages are more than 20% above the mean."""
    flops = [
        {"rank": rank, "level": "rank", "unit": "all", "flop": flop}
        for rank, flop in enumerate((1, 4, 1, 5, 1))
    ]
    (row,) = advise(flops=flops, parallel=[split("pipeline-parallel", 5, 5)])
    assert (row["stage"], row["value"]) == (3, 5)


@given(st.lists(st.tuples(times_ns, times_ns, times_ns), min_size=1, max_size=8))
def test_communication_is_told_by_its_share_of_all_ranks(ranks: list[tuple[int, int, int]]) -> None:
    """Of a pipeline receives, and collectives stage by stage; else all communication."""
    rows = [
        {
            "rank": rank,
            "stage": rank % 2,
            "of": "file",
            "computing_ns": computing_ns,
            "communication_alone_ns": receive_ns + collective_ns,
            "receive_alone_ns": receive_ns,
            "collective_alone_ns": collective_ns,
        }
        for rank, (computing_ns, receive_ns, collective_ns) in enumerate(ranks)
    ]

    def share(name: str, own: Sequence[Row]) -> float:
        whole_ns = sum(row["computing_ns"] + row["communication_alone_ns"] for row in own)
        return float(sum(row[name] for row in own) / whole_ns) if whole_ns else 0.0

    told: dict[tuple[str, int | None], float] = {
        ("communication between stages", None): share("receive_alone_ns", rows),
        **{
            ("communication within a stage", stage): share("collective_alone_ns", rows[stage::2])
            for stage in (0, 1)
        },
    }
    found = advise(parallel=[split("pipeline-parallel", 2, 8)], times=rows)
    shares = {(row["about"], row.get("stage")): row["share"] for row in found}
    beyond = {key: value for key, value in told.items() if value > COMMUNICATING}
    assert shares == pytest.approx(beyond)
    found = advise(parallel=[split("model-parallel", 1, 8)], times=rows)
    whole = share("communication_alone_ns", rows)
    assert [row["share"] for row in found] == pytest.approx([whole] * (whole > COMMUNICATING))


def test_the_fullest_stage_is_told_by_the_mean_of_its_ranks() -> None:
    """Cube and vector count together where files tell them apart."""
    flops = [
        {"rank": rank, "level": "rank", "unit": unit, "flop": flop}
        for rank, flop in enumerate((1, 3, 6, 6))
        for unit in ("cube", "vector")
    ]
    (row,) = advise(flops=flops, parallel=[split("pipeline-parallel", 2, 4)])
    assert (row["about"], row["stage"], row["value"], row["mean"]) == ("work of stages", 1, 12, 8)
    assert row["share"] == 0.5


def test_the_mean_of_the_file_goes_before_that_of_the_steps() -> None:
    """Then the only step; of several steps without a mean nothing is told."""
    rows = [
        *intervals(1, 1, of=None),
        *intervals(2, of="steps"),
        *intervals(3),
        {"rank": 2, "of": None, "interval_ns": 4},
        {"rank": 2, "of": None, "interval_ns": 5},
    ]
    found = mean_rows(table(STEP_TRACE, rows))
    assert [(row["rank"], row["interval_ns"]) for row in found] == [(0, 3), (1, 1)]


def test_sentences_name_what_is_slow() -> None:
    """Each with its number and how far that is from the mean."""
    (interval,) = advise(step_trace=intervals(1_572_250, 1_558_820, 2_431_800, 2_335_380))
    assert interval["text"] == "The step interval of rank 2 is 2.432 ms, 23% above the mean."
    (slow,) = advise(links=[link(0, 1, 0, 20_000), link(1, 0, 1, 20_000, total_ns=4000)])
    assert slow["text"] == (
        "The SDMA link 0-1 of rank 1, numbered inside its group, moves 5.00 GB/s, 60% below "
        "12.5 GB/s, the mean of SDMA links that move much."
    )
    assert (slow["source_rank"], slow["target_rank"], slow["unit"]) == (0, 1, "GB/s")
