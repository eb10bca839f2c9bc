"""Proves that replicas get ranks by their names, and that no group of one meets another."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from timeline.errors import RankIdentityError
from timeline.selection import DETAIL_LAYERS
from timeline.sources.finding.discovery import discover
from timeline.sources.source import ReadRequest

STAMP = "1773709742341309550"


def write(path: Path, ranks: Sequence[int], info: Mapping[str, Any] | None = None) -> None:
    """A trace of one all-reduce in a group of ranks; info: what it tells of its rank."""
    args = {
        "Collective name": "allreduce",
        "Group size": len(ranks),
        "Process Group Name": "0",
        "Process Group Ranks": str(list(ranks)),
        "correlation": 1,
        "stream": 7,
        "device": 0,
    }
    event = {"ph": "X", "cat": "kernel", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": args}
    document = {"schemaVersion": 1, "deviceProperties": [{"id": 0}]}
    document |= {} if info is None else {"distributedInfo": info}
    document |= {"traceEvents": [event | {"name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"}]}
    path.write_text(json.dumps(document), encoding="utf-8")


def groups_of(path: Path) -> dict[int, set[tuple[str, tuple[int, ...]]]]:
    """By rank, the group of its ops and the members that are read of it."""
    found = {}
    for source in discover(path).sources:
        records = source.read(ReadRequest(DETAIL_LAYERS))
        strings, members = records.strings, records.members
        found[source.identity.rank] = {
            (strings[code], tuple(members.rank[members.group == code].tolist()))
            for code in records.ops.group_name.tolist()
        }
    return found


@pytest.mark.parametrize("replicas", [2, 3, 11])
@pytest.mark.parametrize("told", [False, True])
def test_replicas_are_numbered_in_turn(tmp_path: Path, replicas: int, told: bool) -> None:
    """Whether the trace tells the rank inside its replica, or its name alone; dp10 follows dp9."""
    for replica in range(replicas):
        for rank in range(2):
            info = {"rank": rank, "world_size": 2} if told else None
            name = f"dp{replica}_pp0_tp{rank}_dcp0_ep0_rank{rank}.{STAMP}.pt.trace.json"
            write(tmp_path / name, [0, 1], info)
    found = discover(tmp_path)
    assert [one.identity.rank for one in found.sources] == list(range(2 * replicas))
    for source in found.sources:
        assert f"dp{source.identity.rank // 2}_" in source.identity.directory.name
    (note,) = found.notes
    assert f"{replicas} replicas" in note
    assert "dp 1 is 2,3" in note
    groups = groups_of(tmp_path)
    assert {ranks for of_rank in groups.values() for _, ranks in of_rank} == {
        (2 * replica, 2 * replica + 1) for replica in range(replicas)
    }
    names = [name for of_rank in groups.values() for name, _ in of_rank]
    assert len(set(names)) == replicas


def test_a_place_by_pp_and_tp_where_no_rank_is_told(tmp_path: Path) -> None:
    """As SGLang names its files; each replica has as many ranks as its stages and columns."""
    for replica in range(2):
        for stage in range(2):
            for column in range(2):
                name = f"1758-TP-{column}-DP-{replica}-PP-{stage}.trace.json"
                write(tmp_path / name, [0, 1, 2, 3])
    found = discover(tmp_path)
    names = [one.identity.directory.name for one in found.sources]
    assert [name[5:9] + name[10:14] + name[15:19] for name in names[4:]] == [
        *("TP-0DP-1PP-0", "TP-1DP-1PP-0", "TP-0DP-1PP-1", "TP-1DP-1PP-1")
    ]
    assert {ranks for of_rank in groups_of(tmp_path).values() for _, ranks in of_rank} == {
        (0, 1, 2, 3),
        (4, 5, 6, 7),
    }


def test_numbers_that_all_differ_are_the_ranks(tmp_path: Path) -> None:
    """Of attention in replicas inside one run, tp counts through it; groups stay as they are."""
    for rank in range(4):
        write(tmp_path / f"1758-TP-{rank}-DP-{rank // 2}.trace.json", [0, 1, 2, 3])
    assert groups_of(tmp_path) == {rank: {("0 [0, 1, 2, 3]", (0, 1, 2, 3))} for rank in range(4)}


def test_ranks_in_names_that_differ_are_taken_for_those_that_traces_repeat(tmp_path: Path) -> None:
    """The trace counts inside its replica and the name through all."""
    for rank in range(4):
        info = {"rank": rank % 2, "world_size": 2}
        write(tmp_path / f"dp{rank // 2}_tp{rank % 2}_rank{rank}.json", [0, 1], info)
    groups = groups_of(tmp_path)
    assert [ranks for rank in range(4) for _, ranks in groups[rank]] == [
        *((0, 1), (0, 1), (2, 3), (2, 3))
    ]


@pytest.mark.parametrize("ranks", [[0, 1, 2, 3], [0, 2], [2, 3]])
def test_a_group_that_spans_replicas_stays(tmp_path: Path, ranks: Sequence[int]) -> None:
    """One with a rank that no replica has is numbered through all of them."""
    for rank in range(4):
        write(tmp_path / f"dp{rank // 2}_tp{rank % 2}_rank{rank % 2}.json", ranks)
    groups = groups_of(tmp_path)
    assert groups[2] == groups[3] == {(f"0 {ranks}", tuple(ranks))}


def test_a_replica_is_as_large_as_its_run(tmp_path: Path) -> None:
    """Where only the first ranks were kept, the size of the run tells where the next begins."""
    for replica in range(2):
        info = {"rank": 0, "world_size": 8}
        write(tmp_path / f"dp{replica}_tp0_rank0.json", range(8), info)
    assert [ranks for found in groups_of(tmp_path).values() for _, ranks in found] == [
        tuple(range(8)),
        tuple(range(8, 16)),
    ]
    assert list(groups_of(tmp_path)) == [0, 8]


def test_widths_are_no_ranks(tmp_path: Path) -> None:
    """tp1 and tp2 in names of two runs are how many ranks they had."""
    for width in (1, 2):
        write(tmp_path / f"llama_tp{width}.json", [0])
    assert [one.identity.rank for one in discover(tmp_path).sources] == [0, 1]


def test_no_rank_is_larger_than_any_run(tmp_path: Path) -> None:
    """A number in a name that is no replica's gives no ranks: they contradict each other."""
    for number in (0, 999_999_999):
        info = {"rank": 0, "world_size": 8}
        write(tmp_path / f"dp{number}_tp0_rank0.json", range(8), info)
    with pytest.raises(RankIdentityError, match="rank 0 appears twice"):
        discover(tmp_path)
