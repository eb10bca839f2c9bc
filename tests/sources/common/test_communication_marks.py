"""Proves that marks of mstx are taken for communication where they say so, and once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import CommunicationOps, Tasks
from timeline.sources.common.overlap_analysis import CommunicationMark, find_marked_ops, parse_mark

FIELDS = {
    "streamId": "3",
    "count": "8",
    "dataType": "bfp16",
    "groupName": "g",
    "opName": "HcclSend",
}
WHOLE = CommunicationMark("HcclSend", "g", "BFP16", 8)


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (json.dumps(FIELDS), WHOLE),
        (json.dumps(FIELDS, separators=(",", ":")), WHOLE),
        (json.dumps(FIELDS).replace('"', '\\"'), WHOLE),
        (json.dumps({**FIELDS, "count": 8, "destRank": "1"}), WHOLE),
        (json.dumps(dict(reversed(FIELDS.items())))[:-1], WHOLE),
        ("comm:HcclSend,g,bfp16,8", WHOLE),
        (json.dumps({"opName": "HcclSend", "groupName": "g"}), CommunicationMark("HcclSend", "g")),
        (json.dumps({**FIELDS, "count": "many"}), CommunicationMark("HcclSend", "g", "BFP16")),
        (json.dumps({"groupName": "g"}), CommunicationMark()),
        (json.dumps({"opName": "HcclSend", "groupName": ""}), CommunicationMark()),
        ("comm:HcclSend,g", CommunicationMark()),
        ('my step "groupName": "g", "opName": "x"', CommunicationMark()),
        ("train step 3", CommunicationMark()),
        ("", CommunicationMark()),
    ],
)
def test_messages(message: str, wanted: CommunicationMark) -> None:
    """With op and group they are about communication, in all ways in which versions write them."""
    assert parse_mark(message) == wanted


def marked(listed: dict[str, Any], **columns: Any) -> CommunicationOps:
    """The ops of one mark from 10 to 20 ns around HcclAllReduce, beside one op that is listed."""
    strings = StringPool()
    message = json.dumps(FIELDS | {"opName": "HcclAllReduce"})
    times = {"start_ns": np.array([10]), "end_ns": np.array([20])}
    tasks = Tasks.of(1, times | {"connection": np.array([7]), "name": strings.codes(["MsTx"])})
    names = {"name": strings.codes([listed.pop("name")]), "group": strings.codes(["Group 0"])}
    ops = CommunicationOps.of(
        1, {name: np.array([value]) for name, value in listed.items()} | names
    )
    return find_marked_ops(tasks, strings.codes([message]), ops, strings)


@pytest.mark.parametrize(
    ("listed", "count"),
    [
        ({"name": "hcom_allReduce__1_0_1", "start_ns": 12, "end_ns": 19, "connection": 3}, 0),
        ({"name": "hcom_broadcast__1_0_1", "start_ns": 12, "end_ns": 19, "connection": 3}, 1),
        ({"name": "hcom_broadcast__1_0_1", "start_ns": 50, "end_ns": 60, "connection": 7}, 0),
        ({"name": "hcom_allReduce__1_0_1", "start_ns": 20, "end_ns": 29, "connection": 3}, 1),
        ({"name": "hcom_allReduce__1_0_1", "start_ns": 1, "end_ns": 10, "connection": NO_ID}, 1),
    ],
)
def test_what_is_listed_is_not_marked_again(listed: dict[str, Any], count: int) -> None:
    """An op of the same connection, or of the same kind at the same time, is the same op."""
    assert len(marked(listed)) == count
