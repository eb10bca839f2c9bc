"""Groups of ranks and their members, as torch_npu and MindSpore write them to their metadata."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from timeline.columns.columns import Codes
from timeline.columns.group_by import distinct_turns
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID
from timeline.records.tables import GroupMembers, Records
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.losses import unreadable_file
from timeline.sources.decoders.json_values import read_json

METADATA = "profiler_metadata.json"
"""The file of metadata, beside a capture."""
GROUPS = "parallel_group_info"
"""The key of groups in metadata."""
MOST_RANKS = 1 << 24
"""No group is larger."""


@dataclass(frozen=True)
class ProcessGroup:
    """A group: what the source calls it, what the program calls it, and its global ranks.

    size: that of a group whose members are not told.
    """

    group: str
    name: str = ""
    ranks: Sequence[int] = ()
    size: int = 0


def with_process_groups(records: Records, path: Path) -> Records:
    """Records with the groups in profiler_metadata.json; a file that is damaged is counted."""
    try:
        found = members_of(read_groups(read_json(path)), records.strings)
    except SourceError as error:
        lost = unreadable_file(error, records.rank)
        return replace(records, omissions=(*records.omissions, lost))
    return replace(records, members=GroupMembers.concat([records.members, found]))


def read_groups(metadata: dict[str, Any]) -> list[ProcessGroup]:
    """Return the groups in the metadata of a capture."""
    return _groups(metadata.get(GROUPS))


def read_groups_text(text: str, path: Path) -> list[ProcessGroup]:
    """The groups in the metadata of a database, which holds them as JSON.

    Raises:
        SourceError: it is no JSON.
    """
    try:
        return _groups(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise SourceError(path, f"{GROUPS} is not valid JSON: {error.msg}.") from error


def _groups(info: Any) -> list[ProcessGroup]:
    """Groups by raw name, with `group_name` and `global_ranks`; others are none."""
    if not isinstance(info, dict):
        return []
    told = [(str(group), one) for group, one in info.items() if isinstance(one, dict)]
    return [
        ProcessGroup(group, str(one.get("group_name") or ""), ranks_in(one.get("global_ranks")))
        for group, one in told
    ]


def members_of(groups: Iterable[ProcessGroup], strings: StringPool) -> GroupMembers:
    """The table of groups whose members, or size, are told."""
    rows = [
        (group, rank, len(group.ranks) or group.size)
        for group in groups
        if 0 < (len(group.ranks) or group.size) <= MOST_RANKS
        for rank in group.ranks or (NO_ID,)
    ]
    return GroupMembers.of(
        len(rows),
        {
            "group": strings.codes(group.group for group, _, _ in rows),
            "name": strings.codes(group.name for group, _, _ in rows),
            "rank": [rank for _, rank, _ in rows],
            "size": [size for _, _, size in rows],
        },
    )


def label_groups(groups: Codes, strings: StringPool) -> Codes:
    """Labels of groups, (n,), numbered in the order in which they come first, as traces do."""
    _, which, turn = distinct_turns(groups)
    return strings.codes(f"Group {number}" for number in turn.tolist())[which]


def ranks_in(given: Any) -> tuple[int, ...]:
    """The members that a list tells, ascending; none where one of them is no rank."""
    found = [whole_number(rank) for rank in given] if isinstance(given, list) else []
    if any(rank is None or not 0 <= rank < MOST_RANKS for rank in found):
        return ()
    return tuple(sorted({rank for rank in found if rank is not None}))
