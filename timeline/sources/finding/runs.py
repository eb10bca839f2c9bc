"""Groups captures into runs by names and times, and finds when each was recorded."""

from __future__ import annotations

import contextlib
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from itertools import compress, takewhile
from pathlib import Path

from timeline.errors import RankIdentityError, SourceError, format_ids
from timeline.layers import Layer
from timeline.records.clock import EARLIEST_WALL_NS
from timeline.sources.capture import NO_EXTENT, Capture, Claim, Extent
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.export_files import find_sessions
from timeline.sources.common.identity import PROFILER_INFO_NAME, wall_extent
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import files_by_name, find_file, remember_by_directory
from timeline.sources.files.remote_path import path_as_shown
from timeline.sources.source import ReadRequest


def named_time(claim: Claim) -> Extent:
    """Return the time in the name of a capture, in the time zone of whoever named it."""
    try:
        moment = datetime.strptime(f"{claim.taken[:14]}+0000", "%Y%m%d%H%M%S%z")
    except ValueError:
        return NO_EXTENT
    return int(moment.timestamp()) * 10**9 + int(claim.taken[14:]) * 10**6, None


def recorded_time(claim: Claim) -> Extent:
    """Return start and end of a capture by its files, in wall time.

    A file that cannot be read tells nothing: its capture ranks as before.
    """
    with contextlib.suppress(SourceError):
        found = claim.capture.format.recorded_time(claim.capture)
        return found if found != NO_EXTENT else _time_of_files(claim)
    return NO_EXTENT


def _time_of_files(claim: Claim) -> Extent:
    """Return what msprof wrote when it began and ended, or what the framework wrote at its end.

    Of the host before the device.
    """
    directory = claim.capture.directory
    for session in (directory, *find_sessions(directory)):
        inner = [(session / "host", "")]
        if claim.device is not None:
            inner.append((session / f"device_{claim.device}", f".{claim.device}"))
        for where, suffix in inner:
            begun = find_file(where, f"start_info{suffix}")
            ended = find_file(where, f"end_info{suffix}")
            start_us, end_us = (
                None if path is None else whole_number(read_json(path).get(key))
                for path, key in ((begun, "collectionTimeBegin"), (ended, "collectionTimeEnd"))
            )
            if start_us is not None:
                return wall_extent(start_us * 1000, None if end_us is None else end_us * 1000)
    info = _find_profiler_info(directory)
    return NO_EXTENT if info is None else _time_of_profiler_info(info)


@remember_by_directory
def _find_profiler_info(directory: Path) -> Path | None:
    named = files_by_name(directory).items()
    return next((path for name, path in named if PROFILER_INFO_NAME.fullmatch(name)), None)


def _time_of_profiler_info(path: Path) -> Extent:
    """Return the extent by torch_npu: the wall time of its end, and a monotonic clock at both."""
    document = read_json(path)
    start, end = (document.get(key) for key in ("start_info", "end_info"))
    if not isinstance(start, dict) or not isinstance(end, dict):
        return NO_EXTENT
    end_ns = whole_number(end.get("collectionTimeEnd"))
    began_ns = whole_number(start.get("start_monotonic"))
    ended_ns = whole_number(end.get("MonotonicTimeEnd"))
    if end_ns is None or began_ns is None or ended_ns is None:
        return NO_EXTENT
    return wall_extent(end_ns - (ended_ns - began_ns), end_ns)


def read_time(claim: Claim) -> Extent:
    """Return the first and last timestamp of a capture's records, in wall time.

    It is read for that, so this is asked only where nothing else tells runs apart. What counts
    ticks of a device tells no wall time and is not read.
    """
    if claim.capture.format.counts_ticks:
        return NO_EXTENT
    try:
        source = claim.capture.format.open(claim, rank=0)
        records = source.read(
            ReadRequest(frozenset({Layer.HARDWARE}), every_arg=False, measures=False)
        )
    except SourceError:
        return NO_EXTENT  # whoever reads the capture gets the error
    tables = [table for table in (records.tasks, records.ops, records.steps) if len(table)]
    if not tables:
        return NO_EXTENT
    start_ns = min(int(table.start_ns.min()) for table in tables)
    end_ns = max(int(table.end_ns.max()) for table in tables)
    moved_ns = 0
    if start_ns < EARLIEST_WALL_NS:
        moved_ns = claim.clock.wall_offset_ns or 0
    return wall_extent(start_ns + moved_ns, end_ns + moved_ns)


# -- runs ------------------------------------------------------------------------------------------


SAME_RUN_NS = 60 * 10**9
"""Captures of different devices whose starts are closer than this belong to one run."""
LONGEST_NS = 3_600 * 10**9
"""No capture lasts as long: what starts further apart does not overlap."""
MOST_PASSED = 3
"""So many older runs are named in the note on them; --list names all."""


@dataclass(frozen=True)
class FoundRun:
    """The captures of one run.

    ranks: ascending; where no capture tells its rank, their numbers from 0. sources: where they
    lie. start_ns and end_ns: wall time, None if not known. when: its start for people. path:
    what opens this run and no other, None if there is no such path. group: the same number for
    runs that nothing but their directories sets apart.
    """

    ranks: tuple[int, ...]
    sources: tuple[Path, ...]
    start_ns: int | None
    end_ns: int | None
    when: str
    path: Path | None
    claims: tuple[Claim, ...] = ()
    group: int = 0

    @property
    def layouts(self) -> tuple[str, ...]:
        """Return the layouts of its captures, each once."""
        return tuple(dict.fromkeys(claim.capture.format.name for claim in self.claims))

    def renamed(self, name: Callable[[str], str]) -> FoundRun:
        """Return the run under the names that people know, which `name` gives for a path."""
        return replace(
            self,
            sources=tuple(path_as_shown(name(str(source))) for source in self.sources),
            path=None if self.path is None else path_as_shown(name(str(self.path))),
        )

    def spelled(self) -> str:
        """Return its time and ranks for people."""
        return f"{self.when}, {format_ranks(self.ranks)}"


def format_ranks(ranks: Collection[int]) -> str:
    """Return ranks for people, with their noun."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ids(ranks)}"


def group_into_runs(claims: Sequence[Claim], *, with_times: bool = False) -> list[FoundRun]:
    """Return the runs that captures are of, oldest first.

    Names tell when they were taken, then files, and what they recorded only where that leaves it
    open which belong together. Where times do not part captures of one rank, directories do.

    with_times: whether files are asked for start and end where names tell runs apart, too.
    """
    if not claims:
        return []
    groups, extents = _group_by_times(claims)
    if extents == _times_in_names(claims):
        # Names tell the order, and not the wall time.
        no_times = [NO_EXTENT] * len(claims)
        extents = _ask_once(recorded_time, claims) if with_times else no_times
    return [
        replace(
            _run([claims[at] for at in members], [extents[at] for at in members], claims),
            group=number,
        )
        for number, group in enumerate(groups)
        for members in _by_directory(group, claims)
    ]


def _by_directory(group: list[int], claims: Sequence[Claim]) -> list[list[int]]:
    """Return captures of one time by their directory, where ranks make them several runs.

    That is where no directory has a rank twice, and any two have one in common. Ids in names of
    files may be those of devices, which two hosts of one run have in common.
    """
    has_ids = any(claims[at].capture.format.ids is not None for at in group)
    if has_ids or not _are_doubled(group, claims):
        return [group]
    around = _directory_around(claims[at].capture.directory for at in group)
    inside: dict[str, list[int]] = defaultdict(list)
    for at in group:
        directory, *rest = claims[at].capture.directory.relative_to(around).parts or ("",)
        if not rest:  # two captures in one directory are a contradiction
            return [group]
        inside[directory].append(at)
    parts = [inside[name] for name in sorted(inside, key=_as_base_and_new)]
    ranks = [{claims[at].rank for at in part} for part in parts]
    are_runs = all(one & other for at, one in enumerate(ranks) for other in ranks[:at])
    return parts if are_runs and not any(_are_doubled(one, claims) for one in parts) else [group]


def _as_base_and_new(name: str) -> tuple[bool, str]:
    """Return the sort key of a directory: one called like a base comes first."""
    return not name.lower().startswith(("before", "base", "old")), name


def _are_doubled(group: Sequence[int], claims: Sequence[Claim]) -> bool:
    ranks = [claims[at].rank for at in group]
    return len(set(ranks)) < len(ranks) and None not in ranks


def _group_by_times(claims: Sequence[Claim]) -> tuple[list[list[int]], list[Extent]]:
    """Return the runs as numbers of claims, and the times that separate them."""
    tried = list[tuple[list[list[int]], list[Extent]]]()
    for extents in _ever_better_times(claims):
        sessions = list(map(_session, claims, extents))
        groups = group_sessions(sessions)
        if are_certain(sessions, groups):
            return groups, extents
        tried.append((groups, extents))
    timed = [one for one in tried if all(start is not None for start, _ in one[1])]
    return (timed or tried)[-1]


def _ever_better_times(claims: Sequence[Claim]) -> Iterator[list[Extent]]:
    """Return functions for the time of a capture, the fastest first."""
    named = _times_in_names(claims)
    if named is not None:
        yield named
    recorded = _ask_once(recorded_time, claims)
    yield recorded
    are_open = [end_ns is None for _, end_ns in recorded]
    read = iter(_ask_once(read_time, list(compress(claims, are_open))))
    better = [next(read) if is_open else NO_EXTENT for is_open in are_open]
    yield [
        extent if other == NO_EXTENT else other
        for extent, other in zip(recorded, better, strict=True)
    ]


def _ask_once(ask: Callable[[Claim], Extent], claims: Sequence[Claim]) -> list[Extent]:
    """Return the times of captures; ranks merged into one file are asked together."""
    found: dict[tuple[Capture, int | None], Extent] = {}
    for claim in claims:
        if (claim.capture, claim.device) not in found:
            whole = claim if claim.device is not None else replace(claim, part=None)
            found[claim.capture, claim.device] = ask(whole)
    return [found[claim.capture, claim.device] for claim in claims]


def _times_in_names(claims: Sequence[Claim]) -> list[Extent] | None:
    """Return the times in names, where all have one: some are in UTC and others are not."""
    named = [named_time(claim) for claim in claims]
    zones = {claim.capture.format.utc_names for claim in claims}
    is_whole = len(zones) == 1 and all(start is not None for start, _ in named)
    return named if is_whole else None


def _session(claim: Claim, extent: Extent) -> Session:
    capture = claim.capture
    who = (claim.rank, claim.clock.host, claim.device, claim.worker)
    return Session(str(capture.directory), *who, *extent, capture.format.hardware)


def _run(members: Sequence[Claim], extents: Sequence[Extent], claims: Sequence[Claim]) -> FoundRun:
    starts = [start for start, _ in extents if start is not None]
    ends = [end for _, end in extents if end is not None]
    start_ns = min(starts) if starts else None
    end_ns = max(ends) if len(ends) == len(members) else None
    ranks = sorted({claim.rank for claim in members if claim.rank is not None})
    return FoundRun(
        tuple(ranks) if ranks else tuple(range(len(members))),
        tuple(dict.fromkeys(claim.capture.directory for claim in members)),
        start_ns,
        end_ns,
        _when(members, start_ns),
        _path(members, claims),
        tuple(members),
    )


def _when(members: Sequence[Claim], start_ns: int | None) -> str:
    """Spell the start of a run: as names tell it, else in UTC."""
    named = [moment_ns for moment_ns, _ in map(named_time, members) if moment_ns is not None]
    start_ns = min(named, default=start_ns)
    if start_ns is None:
        return "time not known"
    moment = datetime.fromtimestamp(start_ns // 10**9, timezone.utc)
    is_local = named and not members[0].capture.format.utc_names
    return f"{moment:%Y-%m-%d %H:%M:%S}{'' if is_local else ' UTC'}"


def _path(members: Sequence[Claim], claims: Sequence[Claim]) -> Path | None:
    """Return the nearest directory around a run, or its one capture, if it has no other run."""
    directories = {claim.capture.directory for claim in members}
    around = _directory_around(directories)
    ours = set(map(id, members))
    others = [claim.capture.directory for claim in claims if id(claim) not in ours]
    if any(other == around or around in other.parents for other in others):
        return None
    return around


def _directory_around(directories: Iterable[Path]) -> Path:
    """Return the nearest directory that is each of some, or lies around it."""
    first, *others = directories
    lineage = [first, *first.parents]
    for other in others:
        known = {other, *other.parents}
        lineage = [path for path in lineage if path in known]
    return lineage[0]


def describe_older_runs(runs: Sequence[FoundRun], path: Path) -> list[str]:
    """Return a note on the runs that are passed over, and how to read each; none for one run."""
    if len(runs) < 2:
        return []
    said = [f"{run.spelled()}: {_how(run)}" for run in runs[-2::-1][:MOST_PASSED]]
    if (more := len(runs) - 1 - MOST_PASSED) > 0:
        said.append(f"{more} more: {shlex.join(['tlexport', str(path)])} --list")
    return [
        f"{len(runs)} runs lie in {path}; the newest is read ({runs[-1].spelled()}). "
        f"Not read: {'; '.join(said)}."
    ]


def _how(run: FoundRun) -> str:
    """Return what opens a run, or advice so that something does."""
    if run.path is not None:
        return shlex.join(["tlexport", str(run.path)])
    names = ", ".join(source.name for source in run.sources[:2])
    more = f" and {len(run.sources) - 2} more" if len(run.sources) > 2 else ""
    return f"put {names}{more} into a directory of their own"


def runs_of_one_time(runs: Sequence[FoundRun], root: Path) -> RankIdentityError | None:
    """Return the error of newest runs that nothing but their directories sets apart, if any."""
    alike = [run for run in runs if run.group == runs[-1].group]
    if len(alike) < 2:
        return None
    paths = [run.path or run.sources[0] for run in alike]
    top = root.resolve()
    names = [path.relative_to(top) if top in path.parents else path for path in paths]
    said = [f"{name} ({format_ranks(run.ranks)})" for name, run in zip(names, alike, strict=True)]
    if (more := len(alike) - MOST_PASSED) > 0:
        said[MOST_PASSED:] = [f"and {more} more"]
    first, second = (str(root / name) for name in names[:2])
    count, which = ("two", "them") if len(alike) == 2 else (str(len(alike)), "two")
    error = RankIdentityError(
        root,
        f"holds {count} runs of the same time: {', '.join(said)}.",
        do=f"Pass one of them: {shlex.join(['tlexport', first])}, or compare {which}: "
        f"{shlex.join(['tlexport', 'compare', first, second])}",
    )
    error.hints = (
        "All of them: " + shlex.join(["tlexport", str(root), "--list"]),
        "Where they are parts of one run, give each rank its number with --assign-rank DIR=RANK",
    )
    return error


# -- who was captured when -------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """Who was captured, and when, as far as it is known; all times are of one clock.

    rank, host, worker: None or empty where not known. end_ns: None if only the start, or some
    moment near it, is known. hardware: what kind of device it is of.
    """

    path: str
    rank: int | None = None
    host: str = ""
    device: int | None = None
    worker: str = ""
    start_ns: int | None = None
    end_ns: int | None = None
    hardware: str = ""

    @property
    def keys(self) -> dict[str, Hashable]:
        """Return what one capture alone can hold: a rank, a card of a host, a process."""
        card = None if self.device is None else (self.host, self.device)
        keys = {"rank": self.rank, "card": card, "worker": self.worker or None}
        return {kind: key for kind, key in keys.items() if key is not None}

    @property
    def first_ns(self) -> int:
        """The start of one with a time."""
        return self.start_ns or 0

    @property
    def last_ns(self) -> int:
        """The end of one with a time, its start where no end is known."""
        return self.end_ns or self.first_ns

    def alike(self, other: Session) -> dict[str, bool]:
        """Return which kinds of keys are equal, of those that both have."""
        shared = self.keys.keys() & other.keys.keys()
        return {kind: self.keys[kind] == other.keys[kind] for kind in shared}

    def is_before(self, later: Session) -> bool:
        """Return whether one that starts no earlier is another turn of its rank, card or process.

        Where an end is not known, two processes or cards that claim one rank within a minute are
        not: that is a contradiction.
        """
        if later.first_ns < self.last_ns or later.first_ns == self.first_ns:
            return False
        alike = self.alike(later)
        return any(alike.values()) and (
            self.end_ns is not None
            or later.first_ns - self.first_ns >= SAME_RUN_NS
            or [kind for kind, is_alike in alike.items() if is_alike] != ["rank"]
            or all(alike.values())
        )


def group_sessions(sessions: Sequence[Session]) -> list[list[int]]:
    """Return the numbers of the sessions of each run, ascending; runs by their latest start.

    Sessions belong together where they overlap, or where they start within SAME_RUN_NS and are
    of different ranks, cards or processes. Two of one rank, card or process that do not overlap
    are of two runs, however close.
    """
    timed = [at for at, session in enumerate(sessions) if session.start_ns is not None]
    open_runs, runs = list[_Run](), list[_Run]()
    for at in sorted(timed, key=lambda at: (sessions[at].first_ns, sessions[at].path)):
        session = sessions[at]
        start_ns = session.first_ns
        open_runs = [run for run in open_runs if run.may_go_on(start_ns)]
        before = [number for number, run in enumerate(open_runs) if run.is_before(session)]
        behind = open_runs[before[-1] + 1 if before else 0 :]
        fitting = [run for run in behind if run.takes(session)]
        chosen = ([run for run in fitting if start_ns < run.end_ns] or fitting)[-1:]
        if not chosen:
            chosen = [_Run([], [], defaultdict(list))]
            open_runs += chosen
            runs += chosen
        chosen[0].add(at, session)
    runs.sort(key=lambda run: run.sessions[-1].first_ns)
    return _with_timeless(sessions, [sorted(run.members) for run in runs])


def _with_timeless(sessions: Sequence[Session], runs: list[list[int]]) -> list[list[int]]:
    """Add sessions of which no time is known to the runs, those of one hardware together.

    They are of the newest run where nothing in it is of their ranks, cards or processes, and else
    a run of which nobody knows when it was: it comes first.
    """
    blocks: dict[str, list[int]] = defaultdict(list)
    for at, session in enumerate(sessions):
        if session.start_ns is None:
            blocks[session.hardware].append(at)
    newest = runs[-1] if runs else []
    for hardware, block in blocks.items():
        is_same = {sessions[at].hardware for at in newest} == {hardware}
        taken = {key for at in newest for key in sessions[at].keys.items()}
        if is_same and all(taken.isdisjoint(sessions[at].keys.items()) for at in block):
            newest += block
            newest.sort()
        else:
            runs.insert(0, block)
    return runs


def are_certain(sessions: Sequence[Session], runs: Sequence[Sequence[int]]) -> bool:
    """Return whether no better times could change the runs.

    They are where all times are known from start to end. Else each run is one session or different
    ranks, and those that follow each other start hours apart, have the same ranks, or one lacks
    some of the other's and they start far apart.
    """
    if len(sessions) < 2 or all(one.end_ns is not None for one in sessions):
        return True
    if any(one.start_ns is None for one in sessions):
        return False
    ranks = [[sessions[at].rank for at in members] for members in runs]
    if any(len(run) > 1 and (None in run or len(set(run)) < len(run)) for run in ranks):
        return False
    starts = [[sessions[at].start_ns or 0 for at in members] for members in runs]
    for at, (one, other) in enumerate(zip(map(set, ranks), map(set, ranks[1:]), strict=False)):
        gap_ns = min(starts[at + 1]) - max(starts[at])
        are_parts = one <= other or other <= one
        are_turns = None not in one | other and (
            one == other or (are_parts and gap_ns >= SAME_RUN_NS)
        )
        if gap_ns < LONGEST_NS and not are_turns:
            return False
    return True


@dataclass
class _Run:
    """A run to which sessions are added in order of their starts."""

    members: list[int]
    sessions: list[Session]
    by_key: dict[tuple[str, Hashable], list[Session]]
    end_ns: int = 0

    def add(self, at: int, session: Session) -> None:
        self.members.append(at)
        self.sessions.append(session)
        for key in session.keys.items():
            self.by_key[key].append(session)
        self.end_ns = max(self.end_ns, session.last_ns)

    def may_go_on(self, start_ns: int) -> bool:
        """Return whether a session that starts then or later may still be of the run."""
        return start_ns <= self.end_ns or start_ns - self.sessions[-1].first_ns < SAME_RUN_NS

    def is_before(self, session: Session) -> bool:
        """Return whether it holds an earlier turn of the same rank, card or process."""
        turns = (one for key in session.keys.items() for one in self.by_key.get(key, ()))
        return any(one.is_before(session) for one in turns)

    def takes(self, session: Session) -> bool:
        """Return whether a session that starts no earlier than all others is of the run by time."""
        start_ns = session.first_ns
        if start_ns < self.end_ns or start_ns == self.sessions[-1].first_ns:
            return True
        near = takewhile(lambda one: start_ns - one.first_ns < SAME_RUN_NS, reversed(self.sessions))
        return any(not all(one.alike(session).values()) for one in near)
