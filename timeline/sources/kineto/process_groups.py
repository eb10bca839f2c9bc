"""Groups of ranks and their members, by the args of collectives and the head of a PyTorch trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import orjson

from timeline.columns.strings import StringPool
from timeline.records.not_given import NO_ID
from timeline.records.tables import GroupMembers
from timeline.sources.common.identity import ProcessGroup, members_of, ranks_in
from timeline.sources.kineto.collectives import Descriptions


def find_members(
    told: Descriptions,
    configured: Mapping[str, Sequence[int]],
    world: int | None,
    strings: StringPool,
) -> GroupMembers:
    """The members of the groups of some collectives, and how many ranks there are.

    Args:
        told: what the args of the collectives say; long lists of members are cut short there.
        configured: the members of groups that the head of the trace tells, by name.
        world: the number of all ranks, None where it is not told.
    """
    groups = [*_groups(told, configured, strings)]
    if world is not None:
        groups.append(ProcessGroup("", size=world))
    return members_of(groups, strings)


def _groups(
    told: Descriptions, configured: Mapping[str, Sequence[int]], strings: StringPool
) -> Iterator[ProcessGroup]:
    columns = (told.group_name, told.process_group, told.ranks, told.size)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for group_name, process_group, ranks, size in dict.fromkeys(rows):
        name = strings[group_name]
        if not name:
            continue
        members = _listed(strings[ranks]) or configured.get(strings[process_group], ())
        if size not in (NO_ID, len(members)):
            members = ()
        yield ProcessGroup(name, ranks=members, size=max(size, 0))


def _listed(text: str) -> tuple[int, ...]:
    """The members in a list that is written out; none where it is cut short."""
    try:
        return ranks_in(orjson.loads(text))
    except orjson.JSONDecodeError:
        return ()
