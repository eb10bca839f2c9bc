"""Proves that call stacks are read alike from traces and databases."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import timeline
from simulator.rank import TRAINING_STACK
from tests.support.places import DATA
from tests.support.profile_shelf import ProfileShelf
from timeline.layers import Layer
from timeline.records.tables import Records
from timeline.selection import DETAIL_LAYERS
from timeline.sources.source import ReadRequest

LAYOUTS = ("torch-text", "torch-db")


def stacks(records: Records) -> Counter[tuple[str, str]]:
    """How often each operator has each stack."""
    strings, host = records.strings, records.host
    names, texts = strings.texts(host.name), strings.texts(host.stack)
    return Counter((name, text) for name, text in zip(names, texts, strict=True) if text)


def records_of(path: Path, **asked: Any) -> Records:
    with timeline.open_profile(path) as profile:
        return profile.sources[0].read(ReadRequest(DETAIL_LAYERS, **asked))


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real captures are not in {DATA}")
@pytest.mark.parametrize("rank", [0, 1])
def test_stacks_of_a_real_trace_are_those_that_its_profiler_lists(rank: int) -> None:
    """operator_details.csv lists the stack of each operator that has one, not of steps."""
    output = DATA / "torch-npu-text" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    with (output / "operator_details.csv").open(encoding="utf-8", newline="") as file:
        listed = Counter(
            (row["Name"], "\n".join(re.split(r";?\s*[\r\n]+", row["Call Stack"].strip())))
            for row in csv.DictReader(file)
            if row["Call Stack"]
        )
    found = stacks(records_of(output.parent))
    found = Counter({key: n for key, n in found.items() if not key[0].startswith("ProfilerStep#")})
    assert found == listed
    assert sum(found.values()) > 300


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real captures are not in {DATA}")
@pytest.mark.parametrize("rank", [0, 1])
def test_one_script_has_the_same_stacks_in_trace_and_database(rank: int) -> None:
    """Two runs of one script, one exported as text: the same operators from the same lines."""
    text, database = (
        records_of(DATA / f"torch-npu-{kind}" / f"rank{rank}_ascend_pt") for kind in ("text", "db")
    )
    assert stacks(text) == stacks(database)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_stacks_of_made_profiles_are_those_of_the_run(shelf: ProfileShelf, layout: str) -> None:
    """Innermost frame first, a frame a line, one string for all; none where no call is read."""
    path = shelf.get(layout).path
    found = stacks(records_of(path))
    assert {stack for _, stack in found} == {"\n".join(TRAINING_STACK)}
    with timeline.open_profile(path) as profile:
        unread = profile.sources[0].read(ReadRequest(frozenset({Layer.HARDWARE})))
    assert not stacks(unread)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_line_is_told_of_launches_and_idle_calls(shelf: ProfileShelf, layout: str) -> None:
    """Operators of the main thread were launched, and waited for, by the line of their stack."""
    with timeline.open_profile(shelf.get(layout).path) as profile:
        launched, idle = profile.operators(by="launch"), profile.idle(by="call")
        types = profile.operators(by="type")
    assert set(launched["line"]) - {None} == {TRAINING_STACK[0]}
    assert set(types["line"]) - {None} == {TRAINING_STACK[0]}
    assert TRAINING_STACK[0] in set(idle["line"])


def test_args_of_operators_are_read_where_all_are_wanted(shelf: ProfileShelf) -> None:
    """Trace and database agree on shapes, types and sequence numbers; a summary reads none."""
    found = []
    for layout in LAYOUTS:
        records = records_of(shelf.get(layout).path)
        strings, host = records.strings, records.host
        given = zip(
            *(strings.texts(one) for one in (host.name, host.shapes, host.input_types)),
            host.sequence.tolist(),
            strict=True,
        )
        found.append(Counter(row for row in given if row[1]))
        few = records_of(shelf.get(layout).path, every_arg=False).host
        assert not few.shapes.any()
        assert not few.input_types.any()
        assert (few.sequence == -1).all()
    assert found[0] == found[1]
    assert found[0]
