"""Members of the groups of ranks that run collectives, and global ranks of their members."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from timeline.columns.chunks import compute_in_chunks
from timeline.columns.columns import Codes, Int64
from timeline.columns.distinct import distinct, distinct_pairs, rows_by_value
from timeline.columns.strings import NO_NAME
from timeline.records.not_given import NO_ID
from timeline.records.tables import Records

_NUMBER = re.compile(r"[0-9]{1,20}")
"""The numbers of groups have 64 bits."""
_NUMBERED = re.compile(r"__([0-9]{1,20})_[0-9]+_[0-9]+$")
_LAST_DIGITS = 1000
"""Names of ops end in the group's number modulo this."""


@dataclass(frozen=True)
class RankGroup:
    """Facts that a rank records about a group: its name in the program, its members and its size.

    members: global ranks, ascending; empty if unknown. size: 0 if unknown. most: the size of the
    run, which no group exceeds; 0 if unknown.
    """

    name: str = ""
    members: tuple[int, ...] = ()
    size: int = 0
    most: int = 0


def group_number(name: str) -> int:
    """Return the number that CANN derives from the name of a group (`hashed_group` of msprof).

    >>> group_number("group_name_19")
    3985310405473756128
    """
    by_29 = by_131 = 0
    for byte in name.encode():
        by_29 = (by_29 * 29 + byte) & 0xFFFFFFFF
        by_131 = (by_131 * 131 + byte) & 0xFFFFFFFF
    return by_29 << 32 | by_131


def group_in_name(name: str) -> str:
    """Return the last digits of the group's number in the name of an HCCL op; empty for others."""
    match = _NUMBERED.search(name)
    return match[1] if match else ""


@dataclass(frozen=True)
class _NamedGroups:
    """Groups that a source names, by name and by the last digits of their number."""

    most: int = 0
    by_name: dict[str, RankGroup] = field(default_factory=dict)
    by_digits: dict[int, set[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Records) -> _NamedGroups:
        members, strings = records.members, records.strings
        most = int(members.size[members.group == NO_NAME].max(initial=0))
        named_groups = cls(most)
        named = distinct(members.group[members.group != NO_NAME])
        for code, rows in rows_by_value(members.group, named):
            ranks = sorted(set(members.rank[rows].tolist()) - {NO_ID})
            sizes = set(members.size[rows].tolist())
            names = members.name[rows].tolist()
            name = next((strings[one] for one in names if one != NO_NAME), "")
            size = sizes.pop() if len(sizes) == 1 else 0
            all_ranks = tuple(ranks) if len(ranks) == size else ()
            named_groups._add(strings[code], RankGroup(name, all_ranks, size, most))
        # The links of a rank with tables only show a minimum number of members.
        links = records.vendor_links
        groups = distinct(links.group[links.group != NO_NAME]) if records.tables_only else ()
        for code in groups:
            rows = np.flatnonzero(links.group == code)
            highest = int(max(links.source_rank[rows].max(), links.target_rank[rows].max()))
            if strings[code] not in named_groups.by_name:
                named_groups._add(strings[code], RankGroup(size=highest + 1, most=most))
        return named_groups

    def _add(self, name: str, group: RankGroup) -> None:
        number = int(name) if _NUMBER.fullmatch(name) else group_number(name)
        self.by_name[name] = self.by_name[str(number)] = group
        self.by_digits.setdefault(number % _LAST_DIGITS, set()).add(name)

    def group(self, names: set[str], digits: set[str]) -> RankGroup:
        """Return the group with one of the names, or the only one with the last digits."""
        for name in names:
            if name in self.by_name:
                return self.by_name[name]
        candidates = {name for end in digits for name in self.by_digits.get(int(end), ())}
        return self.by_name[candidates.pop()] if len(candidates) == 1 else RankGroup(most=self.most)


def find_groups(records: Records) -> dict[int, RankGroup]:
    """Return the known facts of each group of ops, by the code of its label."""
    named_groups, strings, ops = _NamedGroups.of(records), records.strings, records.ops
    names: dict[int, set[str]] = {}
    digits: dict[int, set[str]] = {}
    pairs, _ = distinct_pairs(ops.group.astype(np.int64), ops.group_name.astype(np.int64))
    for label, name in pairs.tolist():
        names.setdefault(label, set()).update({strings[label], strings[name]} - {""})
    if named_groups.by_digits:
        pairs, _ = distinct_pairs(ops.group.astype(np.int64), ops.name.astype(np.int64))
        for label, name in pairs.tolist():
            digits.setdefault(label, set()).update({group_in_name(strings[name])} - {""})
    return {
        label: named_groups.group(of_label, digits.get(label, set()))
        for label, of_label in names.items()
    }


def unknown_groups(records: Records, groups: Codes) -> Codes:
    """Return the groups with unknown members, whose ranks are numbered within the group.

    groups: codes of labels, or of the numbers that CANN derives from the names.
    """
    named_groups, known_groups = _NamedGroups.of(records), find_groups(records)
    unknown = [
        code
        for code in distinct(groups).tolist()
        if not (
            known_groups.get(code) or named_groups.group({records.strings[code]}, set())
        ).members
    ]
    return np.array(unknown, np.int32)


def with_global_ranks(records: Records) -> Records:
    """Return records whose HCCL tasks and links use global ranks.

    Sources give the number within the group, which is the position among its members in ascending
    order (msprof-analyze assumes the same). If members are unknown the number stays: in a group of
    all ranks it is the global rank. The program's name of a group is appended to its label.
    """
    if not len(records.members):
        return records
    groups = find_groups(records)
    records = _with_ranks(records, groups)
    return _with_names(records, groups)


def _with_ranks(records: Records, groups: Mapping[int, RankGroup]) -> Records:
    planes, links = records.planes, records.vendor_links
    moved = {
        label: np.array(group.members, np.int64)
        for label, group in groups.items()
        if group.members != tuple(range(len(group.members)))
    }
    if moved and len(planes):
        in_tasks = partial(_global, members=moved)
        planes = replace(
            planes,
            source_rank=compute_in_chunks(np.int64, in_tasks, planes.group, planes.source_rank),
            target_rank=compute_in_chunks(np.int64, in_tasks, planes.group, planes.target_rank),
        )
    if len(links):
        named_groups = _NamedGroups.of(records)
        of_links = {
            code: np.array(named_groups.group({records.strings[code]}, set()).members, np.int64)
            for code in distinct(links.group[links.group != NO_NAME]).tolist()
        }
        links = replace(
            links,
            source_rank=_global(links.group, links.source_rank, of_links),
            target_rank=_global(links.group, links.target_rank, of_links),
        )
    return replace(records, planes=planes, vendor_links=links)


def _global(group: Codes, ranks: Int64, members: Mapping[int, Int64]) -> Int64:
    """Convert ranks within groups to global ranks; numbers without a member stay."""
    global_ranks = ranks.copy()
    for label, positions in rows_by_value(group, np.array(sorted(members), group.dtype)):
        of_group = members[label]
        rows = positions[(ranks[positions] >= 0) & (ranks[positions] < len(of_group))]
        global_ranks[rows] = of_group[ranks[rows]]
    return global_ranks


def _with_names(records: Records, groups: Mapping[int, RankGroup]) -> Records:
    """Append the names that the program has for groups to their labels."""
    strings = records.strings
    labels = np.arange(len(strings), dtype=np.int32)
    for label, group in groups.items():
        if group.name and group.name not in strings[label]:
            labels[label] = strings.code(f"{strings[label]} {group.name}")
    if np.array_equal(labels, np.arange(len(labels))):
        return records

    def rename(codes: Codes) -> Codes:
        return labels[codes]

    ops, planes = records.ops, records.planes
    return replace(
        records,
        ops=replace(ops, group=compute_in_chunks(np.int32, rename, ops.group)),
        planes=replace(planes, group=compute_in_chunks(np.int32, rename, planes.group)),
    )
