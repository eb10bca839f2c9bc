"""A capture's rank, device, host, clock, time and process groups, from its files and names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from timeline.columns.columns import Codes
from timeline.columns.distinct import distinct_turns
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.records.clock import EARLIEST_WALL_NS, Clock
from timeline.records.not_given import NO_ID
from timeline.records.tables import GroupMembers, Records
from timeline.sources.capture import (
    DEVICE_DIRECTORY,
    NO_EXTENT,
    Capture,
    Claim,
    Evidence,
    Extent,
    Part,
    Root,
)
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.device_clock import read_start_info_offset_ns
from timeline.sources.common.losses import unreadable_file
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import files_by_name, find_file, source_errors_for

MOST_RANKS = 1 << 31
_NO_CLOCK = Clock()
PROFILER_INFO_NAME = re.compile(r"profiler_info_([0-9]{1,9})\.json")
_NAME_RANK = re.compile(r"rank[-_]?([0-9]{1,9})(?:[-_].*)?")
_RANK_IN_FILE_NAME = re.compile(r"(?<![a-z])(?<!local[-_])rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)
_STAMPS = re.compile(r"(?<!\d)(\d{14}|\d{17})(?!\d)")
_WORKER = re.compile(r"(.+)_\d{14,17}_ascend_(?:pt|ms)")


def identify_device(capture: Capture, root: Root, *, several: bool = False) -> list[Claim]:
    """Identify a capture of one device by metadata of msprof and the framework, and by names.

    several: whether the directory of the capture holds several devices.

    Raises:
        SourceError: a file of metadata cannot be read.
    """
    evidence = find_evidence_in_files(capture) + find_evidence_in_names(capture, root)
    return [make_claim(capture, evidence, _device(capture), _clock(capture), several)]


def identify_all_devices(capture: Capture, root: Root) -> list[Claim]:
    """Identify a capture whose files hold all devices of its directory, one or several.

    Raises:
        SourceError: a file of metadata cannot be read.
    """
    return identify_device(capture, root, several=count_devices(capture.directory) > 1)


def identify_each_device(
    capture: Capture, root: Root, find_devices: Callable[[Path], list[int]]
) -> list[Claim]:
    """Identify each device in a capture: one process may drive several.

    find_devices: finds them in the content; if it raises, the capture counts as of one device.

    Raises:
        SourceError: a file of metadata cannot be read.
    """
    (claim,) = identify_device(capture, root)
    devices = list[int]()
    with contextlib.suppress(SourceError):
        devices = find_devices(capture.content)
    if len(devices) < 2:
        return [claim]
    return [replace(claim, device=device, part=Part.of_device(device)) for device in devices]


def make_claim(
    capture: Capture,
    evidence: Iterable[Evidence],
    device: int | None = None,
    clock: Clock = _NO_CLOCK,
    several: bool = False,
) -> Claim:
    """Return a claim with the time stamp and the process in the name of the capture."""
    name = capture.directory.name
    worker = _WORKER.fullmatch(name)
    stamps = _STAMPS.findall(name)
    return Claim(
        capture,
        tuple(evidence),
        device,
        clock,
        Part.of_device(device) if several else None,
        stamps[-1].ljust(17, "0") if stamps else "",
        worker[1] if worker else "",
    )


def _device(capture: Capture) -> int | None:
    if capture.device is not None:
        return capture.device
    if match := DEVICE_DIRECTORY.fullmatch(capture.content.parent.name):
        return int(match[1])
    return None


def count_devices(directory: Path) -> int:
    """Return the number of directories of devices in a directory.

    Raises:
        SourceError: the directory cannot be read.
    """
    with source_errors_for(directory):
        return sum(1 for path in directory.iterdir() if DEVICE_DIRECTORY.fullmatch(path.name))


def find_evidence_in_files(capture: Capture) -> list[Evidence]:
    """Return the ranks in profiler_info_R.json and info.json[.N]; msprof's -1 means unknown.

    Raises:
        SourceError: one of them cannot be read.
    """
    directory = capture.directory
    evidence = [*_profiler_info(directory), *_info_json(capture)]
    if _WORKER.fullmatch(directory.parent.name):
        # Until the framework has parsed the data of msprof, its own metadata is one level above.
        evidence += _profiler_info(directory.parent)
    return evidence


def _profiler_info(directory: Path) -> Iterable[Evidence]:
    for name, path in files_by_name(directory).items():
        if match := PROFILER_INFO_NAME.fullmatch(name):
            yield Evidence(int(match[1]), path.name)
            if (rank := _rank_in(path)) is not None:
                yield Evidence(rank, f"{path.name}: rank_id")


def _info_json(capture: Capture) -> Iterable[Evidence]:
    for path in _info_files(capture):
        if (rank := _rank_in(path)) is not None:
            yield Evidence(rank, f"{path.parent.name}/{path.name}: rank_id")


def _info_files(capture: Capture) -> list[Path]:
    device = _device(capture)
    devices = capture.directory.glob("device_*" if device is None else f"device_{device}")
    files = [
        path
        for directory in sorted(devices)
        if directory.is_dir()
        for name, path in files_by_name(directory).items()
        if name.startswith("info.json") and not name.endswith(".done") and path.is_file()
    ]
    host = find_file(capture.directory / "host", "info.json")
    return files if files or host is None else [host]


def _rank_in(path: Path) -> int | None:
    rank = whole_number(read_json(path).get("rank_id"))
    return rank if rank is not None and is_rank(rank) else None


def is_rank(number: int) -> bool:
    """Return whether a number is a rank; writers use -1, signed or unsigned, for none."""
    return 0 <= number < MOST_RANKS


def find_evidence_in_names(capture: Capture, root: Root) -> list[Evidence]:
    """Return the rank in the name of the nearest directory at or above a capture.

    Names above the path that the user gave count only if no name at or below it has a rank.
    """
    directory, top = capture.directory.resolve(), root.resolved
    lineage = [directory, *directory.parents]
    depth = lineage.index(top) if top in lineage else 0
    for path in lineage[: depth + 1]:
        if match := _NAME_RANK.fullmatch(path.name):
            return [Evidence(int(match[1]), f"directory {path.name}")]
    for path in lineage[depth + 1 :] if root.above is None else root.above:
        if match := re.fullmatch(r"rank[-_]([0-9]{1,9})", path.name):
            return [Evidence(int(match[1]), f"directory {path.name}")]
    return []


def ranks_in_file_name(name: str) -> tuple[int, ...]:
    """Return the distinct ranks in the name of a trace; a local rank is not one."""
    return tuple(dict.fromkeys(int(rank) for rank in _RANK_IN_FILE_NAME.findall(name)))


def _clock(capture: Capture) -> Clock:
    host = ""
    for path in _info_files(capture):
        info = read_json(path)
        host = "/".join(str(info[key]) for key in ("hostname", "mac") if info.get(key))
    return Clock(host=host, wall_offset_ns=_wall_offset_ns(capture))


def _wall_offset_ns(capture: Capture) -> int | None:
    """Return wall time minus the raw monotonic clock, from the device's or host's start_info."""
    device = _device(capture)
    files = [find_file(capture.directory / "host", "start_info")]
    if device is not None:
        inside = capture.directory / f"device_{device}"
        files.insert(0, find_file(inside, f"start_info.{device}"))
    for path in files:
        if path is not None:
            return read_start_info_offset_ns(path)
    return None


def wall_extent(start: object, end: object) -> Extent:
    """Return start and end if they are wall times, else no extent; drop an end before the start."""
    start_ns, end_ns = whole_number(start), whole_number(end)
    if start_ns is None or start_ns < EARLIEST_WALL_NS:
        return NO_EXTENT
    return start_ns, None if end_ns is None or end_ns < start_ns else end_ns


# -- process groups --------------------------------------------------------------------------------


METADATA = "profiler_metadata.json"
"""The framework's file of metadata in the directory of a capture."""
GROUPS = "parallel_group_info"
"""The key of process groups in metadata."""
_MOST_MEMBERS = 1 << 24
"""The most ranks of a group; larger ones are damaged."""


@dataclass(frozen=True)
class ProcessGroup:
    """A process group by its name in the source, with its name in the program and global ranks.

    size: the number of ranks if `ranks` is empty because they are unknown.
    """

    group: str
    name: str = ""
    ranks: Sequence[int] = ()
    size: int = 0


def with_process_groups(records: Records, path: Path) -> Records:
    """Add the groups in profiler_metadata.json to records; count a damaged file as lost."""
    try:
        members = members_of(read_groups(read_json(path).get(GROUPS)), records.strings)
    except SourceError as error:
        lost = unreadable_file(error, records.rank)
        return replace(records, omissions=(*records.omissions, lost))
    return replace(records, members=GroupMembers.concat([records.members, members]))


def read_groups_text(text: str, path: Path) -> list[ProcessGroup]:
    """Return the groups in the metadata of a database, which holds them as JSON.

    Raises:
        SourceError: the metadata is not JSON.
    """
    try:
        return read_groups(orjson.loads(text))
    except orjson.JSONDecodeError as error:
        raise SourceError(path, f"{GROUPS} is not valid JSON: {error.msg}.") from error


def read_groups(info: Any) -> list[ProcessGroup]:
    """Parse the value of `GROUPS`: an object of groups by their names in the source."""
    entries = info.items() if isinstance(info, dict) else ()
    return [
        ProcessGroup(
            str(name), str(entry.get("group_name") or ""), ranks_in(entry.get("global_ranks"))
        )
        for name, entry in entries
        if isinstance(entry, dict)
    ]


def members_of(groups: Iterable[ProcessGroup], strings: StringPool) -> GroupMembers:
    """Return a table of the groups whose ranks or size are known."""
    rows = [
        (group, rank, len(group.ranks) or group.size)
        for group in groups
        if 0 < (len(group.ranks) or group.size) <= _MOST_MEMBERS
        for rank in group.ranks or (NO_ID,)
    ]
    return GroupMembers.of(
        len(rows),
        group=strings.codes(group.group for group, _, _ in rows),
        name=strings.codes(group.name for group, _, _ in rows),
        rank=[rank for _, rank, _ in rows],
        size=[size for _, _, size in rows],
    )


def label_groups(groups: Codes, strings: StringPool) -> Codes:
    """Return labels "Group N", (n,), numbered by first appearance as in traces."""
    _, which, turn = distinct_turns(groups)
    return strings.codes(f"Group {number}" for number in turn.tolist())[which]


def ranks_in(value: Any) -> tuple[int, ...]:
    """Return the ranks in a JSON list, ascending; none if it is not a list of ranks."""
    ranks = [whole_number(rank) for rank in value] if isinstance(value, list) else []
    if any(rank is None or not 0 <= rank < _MOST_MEMBERS for rank in ranks):
        return ()
    return tuple(sorted({rank for rank in ranks if rank is not None}))
