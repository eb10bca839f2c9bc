"""Proves that groups of ranks and their members are read from every place that tells them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any

import pytest

from tests.support.profile_shelf import Copier, Profile, ProfileShelf
from tests.support.read_profiles import lost_rows, records_of
from timeline import open_profile
from timeline.analysis.waits.group_members import (
    find_groups,
    group_in_name,
    group_number,
    with_global_ranks,
)
from timeline.columns.strings import StringPool
from timeline.errors import TimelineError
from timeline.records.tables import Records
from timeline.sources.common.identity import ProcessGroup, members_of, ranks_in

NAME = "10.0.0.1%enp189s0f0_60000_0_1736424000123586"
RANKS = [4, 9, 11, 12, 20, 21, 22, 30]
"""Members of which the first two were profiled, as ranks 0 and 1 of the group."""


def info(name: str = NAME, ranks: Any = RANKS) -> dict[str, Any]:
    return {name: {"group_name": "dp", "group_rank": 0, "global_ranks": ranks}}


def into_metadata(profile: Profile, text: str) -> None:
    """Write what torch_npu and MindSpore note beside a capture."""
    for capture in profile.captures:
        (capture / "profiler_metadata.json").write_text(text, encoding="utf-8")


def into_database(profile: Profile, text: str) -> None:
    """Write what torch_npu notes in its database."""
    for path in profile.path.rglob("ascend_pytorch_profiler_*.db"):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO META_DATA VALUES ('parallel_group_info', ?)", (text,))


def groups_of(records: Records) -> Iterator[tuple[str, str, tuple[int, ...], int]]:
    """Label, name, members and size of each group."""
    for label, group in find_groups(records).items():
        yield records.strings[label], group.name, group.members, group.size


def name_ending(digits: int) -> str:
    """A name whose number ends in these digits, as the names of ops do."""
    return next(
        name
        for name in (f"10.0.0.1%enp_{number}" for number in count())
        if group_number(name) % 1000 == digits
    )


def peers_of(records: Records) -> set[int]:
    planes = records.planes
    told = (planes.target_rank >= 0) & (planes.target_rank != planes.source_rank)
    return set(planes.target_rank[told].tolist())


@pytest.mark.parametrize("layout", ["torch-text", "torch-db"])
def test_metadata_beside_a_capture_is_read(copied: Copier, layout: str) -> None:
    """Members by raw name, though text holds three digits of its number; ranks become global."""
    profile = copied(layout)
    bare = records_of(profile.path)
    name = NAME
    if layout == "torch-text":
        op = bare.strings[int(bare.ops.name[0])]
        name = name_ending(int(group_in_name(op)))
    into_metadata(profile, json.dumps({"parallel_group_info": info(name)}))
    records = with_global_ranks(records_of(profile.path))
    assert [*groups_of(records)] == [("Group 0 dp", "dp", tuple(RANKS), 8)]
    assert peers_of(records) == {RANKS[number] for number in peers_of(bare)}
    assert set(records.planes.source_rank.tolist()) == {RANKS[0]}


def test_metadata_of_a_database_is_read(copied: Copier) -> None:
    profile = copied("torch-db")
    into_database(profile, json.dumps(info()))
    records = with_global_ranks(records_of(profile.path))
    assert [*groups_of(records)] == [("Group 0 dp", "dp", tuple(RANKS), 8)]
    assert peers_of(records) <= set(RANKS[1:])


def test_the_number_of_members_is_read_of_raw_data(shelf: ProfileShelf) -> None:
    """`rank_size` of the ops that msprof parsed."""
    profile = shelf.get("msprof-sqlite")
    ((_, _, members, size),) = groups_of(records_of(profile.path))
    assert (members, size) == ((), len(profile.run.ranks))


def test_rows_and_tables_show_the_name_of_a_group(copied: Copier) -> None:
    """Links are between global ranks, and collectives are of the group by its name."""
    profile = copied("torch-db")
    into_database(profile, json.dumps(info()))
    with open_profile(profile.path) as opened:
        figures = opened._measure(None, {}).figures
    assert set(figures.collectives["group"].tolist()) == {"Group 0 dp"}
    assert set(figures.links["target_rank"].tolist()) <= set(RANKS)
    assert set(figures.links["source_rank"].tolist()) == {RANKS[0], RANKS[1]}


@pytest.mark.parametrize(
    "told", [None, [], "dp", {"a": 1}, info(ranks="0-7"), info(ranks=[0, -1]), info(ranks=[])]
)
def test_other_shapes_are_no_groups(copied: Copier, told: object) -> None:
    """What is not written as torch_npu writes it tells nothing, and nothing else is lost by it."""
    profile = copied("torch-text")
    before = lost_rows(records_of(profile.path))
    into_metadata(profile, json.dumps({"parallel_group_info": told}))
    records = records_of(profile.path)
    assert not len(records.members)
    assert lost_rows(records) == before


def test_damaged_metadata_is_told(copied: Copier) -> None:
    """Of the file beside a capture it is counted."""
    profile = copied("torch-text")
    into_metadata(profile, '{"parallel_group_info": {')
    records = records_of(profile.path)
    assert any("profiler_metadata.json" in reason for reason in lost_rows(records))


def test_damaged_metadata_of_a_database_is_told(copied: Copier) -> None:
    """It does not keep the rest from being read."""
    profile = copied("torch-db")
    into_database(profile, "{")
    try:
        records = records_of(profile.path)
    except TimelineError as error:
        pytest.fail(f"a rank is lost for its groups: {error}")
    assert not len(records.members)
    assert any("parallel_group_info" in warning for warning in records.warnings)


def test_members_are_ranks() -> None:
    assert ranks_in([3, "1", 2, 2]) == (1, 2, 3)
    for wrong in (None, 7, "0", [True], [1.5], [-1], [1 << 40], [None]):
        assert ranks_in(wrong) == ()


def test_a_group_of_known_size_alone_has_one_row() -> None:
    strings = StringPool()
    members = members_of(
        [ProcessGroup("a", size=4), ProcessGroup("b"), ProcessGroup("c", ranks=(1, 2))], strings
    )
    assert members.rank.tolist() == [-1, 1, 2]
    assert members.size.tolist() == [4, 2, 2]
