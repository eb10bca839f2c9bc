"""Finds when captures were recorded, and groups captures of the same time into runs."""

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


def time_in_name(claim: Claim) -> Extent:
    """Return the start written in a capture's name, as if it were in UTC; it may be local time."""
    try:
        start = datetime.strptime(f"{claim.taken[:14]}+0000", "%Y%m%d%H%M%S%z")
    except ValueError:
        return NO_EXTENT
    return int(start.timestamp()) * 10**9 + int(claim.taken[14:]) * 10**6, None


def recorded_time(claim: Claim) -> Extent:
    """Return start and end of a capture as stated in its files, in wall time.

    A file that cannot be read counts as one without times.
    """
    with contextlib.suppress(SourceError):
        extent = claim.recorded
        if extent == NO_EXTENT:
            extent = claim.capture.format.recorded_time(claim.capture)
        return extent if extent != NO_EXTENT else _time_of_files(claim)
    return NO_EXTENT


def _time_of_files(claim: Claim) -> Extent:
    """Return the times in start_info and end_info of msprof, else in profiler_info of torch_npu.

    Files of the host are preferred to those of the device.
    """
    directory = claim.capture.directory
    for session in (directory, *find_sessions(directory)):
        inner = [(session / "host", "")]
        if claim.device is not None:
            inner.append((session / f"device_{claim.device}", f".{claim.device}"))
        for where, suffix in inner:
            start_us, end_us = (
                None if path is None else whole_number(read_json(path).get(key))
                for path, key in (
                    (find_file(where, f"start_info{suffix}"), "collectionTimeBegin"),
                    (find_file(where, f"end_info{suffix}"), "collectionTimeEnd"),
                )
            )
            if start_us is not None:
                return wall_extent(start_us * 1000, None if end_us is None else end_us * 1000)
    info = _find_profiler_info(directory)
    return NO_EXTENT if info is None else _time_of_profiler_info(info)


@remember_by_directory
def _find_profiler_info(directory: Path) -> Path | None:
    files = files_by_name(directory).items()
    return next((path for name, path in files if PROFILER_INFO_NAME.fullmatch(name)), None)


def _time_of_profiler_info(path: Path) -> Extent:
    """Return the extent in torch_npu's profiler_info.

    The file holds the wall time of the end, and the monotonic clock at start and end.
    """
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


def time_of_records(claim: Claim) -> Extent:
    """Return the first and last timestamp of a capture's records, in wall time.

    This reads the whole capture, so it is used only if nothing else separates runs. Captures in
    ticks of a device have no wall time and are not read.
    """
    if claim.capture.format.counts_ticks:
        return NO_EXTENT
    try:
        source = claim.capture.format.open(claim, rank=0)
        records = source.read(
            ReadRequest(frozenset({Layer.HARDWARE}), every_arg=False, measures=False)
        )
    except SourceError:
        return NO_EXTENT  # the same error is raised when the capture is read for export
    tables = [table for table in (records.tasks, records.ops, records.steps) if len(table)]
    if not tables:
        return NO_EXTENT
    start_ns = min(int(table.start_ns.min()) for table in tables)
    end_ns = max(int(table.end_ns.max()) for table in tables)
    offset_ns = 0
    if start_ns < EARLIEST_WALL_NS:
        offset_ns = claim.clock.wall_offset_ns or 0
    return wall_extent(start_ns + offset_ns, end_ns + offset_ns)


# -- runs ------------------------------------------------------------------------------------------


SAME_RUN_NS = 60 * 10**9
"""Captures of different devices whose starts are closer than this belong to one run."""
LONGEST_NS = 3_600 * 10**9
"""Upper bound of a capture's duration: captures that start further apart do not overlap."""
MOST_RUNS_NAMED = 3
"""Maximum number of runs named in one message; --list shows all."""


@dataclass(frozen=True)
class FoundRun:
    """The captures of one run.

    ranks: ascending; if no capture states its rank, numbers from 0. sources: directories of the
    captures. start_ns, end_ns: wall time, None if not known. when: the start, formatted for
    display. path: a path that holds this run and no other, None if there is no such path. group:
    equal for runs of the same time, which only their directories separate.
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
        """Return the format names of the captures, each once."""
        return tuple(dict.fromkeys(claim.capture.format.name for claim in self.claims))

    def with_shown_paths(self, show: Callable[[str], str]) -> FoundRun:
        """Return the run with each path replaced by `show(path)`, such as that of its archive."""
        return replace(
            self,
            sources=tuple(path_as_shown(show(str(source))) for source in self.sources),
            path=None if self.path is None else path_as_shown(show(str(self.path))),
        )

    def describe(self) -> str:
        """Return the time and ranks, formatted for display."""
        return f"{self.when}, {format_ranks(self.ranks)}"


def format_ranks(ranks: Collection[int]) -> str:
    """Format ranks with their noun, as in "ranks 0-3"."""
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {format_ids(ranks)}"


def group_into_runs(claims: Sequence[Claim], *, with_times: bool = False) -> list[FoundRun]:
    """Group captures into runs, oldest first.

    Times are taken from names, then from metadata files, and from the records themselves only if
    the others leave it open which captures belong together. Captures of one rank that times do
    not separate are separated by directory.

    with_times: read start and end from files even if names suffice to separate runs.
    """
    if not claims:
        return []
    groups, extents = _group_by_times(claims)
    if extents == _times_in_names(claims):
        # Times in names may be local: they give the order of runs, but no wall time.
        no_times = [NO_EXTENT] * len(claims)
        extents = _extents_by(recorded_time, claims) if with_times else no_times
    return [
        replace(
            _make_run([claims[at] for at in members], [extents[at] for at in members], claims),
            group=number,
        )
        for number, group in enumerate(groups)
        for members in _split_by_directory(group, claims)
    ]


def _split_by_directory(group: list[int], claims: Sequence[Claim]) -> list[list[int]]:
    """Split captures of one time by directory, if their ranks show that they are several runs.

    They are if no directory has a rank twice, and any two directories have a rank in common.
    Captures with ids in file names are not split: these may be device ids, which occur on every
    host of a run.

    group: positions in claims.
    """
    has_ids = any(claims[at].capture.format.ids is not None for at in group)
    if has_ids or not _are_doubled(group, claims):
        return [group]
    around = _common_directory(claims[at].capture.directory for at in group)
    inside: dict[str, list[int]] = defaultdict(list)
    for at in group:
        directory, *rest = claims[at].capture.directory.relative_to(around).parts or ("",)
        if not rest:  # two captures in one directory are a contradiction
            return [group]
        inside[directory].append(at)
    parts = [inside[name] for name in sorted(inside, key=_baseline_first)]
    ranks = [{claims[at].rank for at in part} for part in parts]
    are_runs = all(one & other for at, one in enumerate(ranks) for other in ranks[:at])
    return parts if are_runs and not any(_are_doubled(one, claims) for one in parts) else [group]


def _baseline_first(name: str) -> tuple[bool, str]:
    """Return a sort key that puts directories named like a baseline (before, old) first."""
    return not name.lower().startswith(("before", "base", "old")), name


def _are_doubled(group: Sequence[int], claims: Sequence[Claim]) -> bool:
    """Return whether all captures have a rank, and two have the same."""
    ranks = [claims[at].rank for at in group]
    return len(set(ranks)) < len(ranks) and None not in ranks


def _group_by_times(claims: Sequence[Claim]) -> tuple[list[list[int]], list[Extent]]:
    """Return runs as positions in claims, and the times by which they were separated."""
    attempts = list[tuple[list[list[int]], list[Extent]]]()
    for extents in _times_by_increasing_cost(claims):
        sessions = list(map(_session, claims, extents))
        groups = group_sessions(sessions)
        if are_certain(sessions, groups):
            return groups, extents
        attempts.append((groups, extents))
    timed = [one for one in attempts if all(start is not None for start, _ in one[1])]
    return (timed or attempts)[-1]


def _times_by_increasing_cost(claims: Sequence[Claim]) -> Iterator[list[Extent]]:
    """Yield the times of all captures: from names, from metadata files, then from records."""
    named = _times_in_names(claims)
    if named is not None:
        yield named
    recorded = _extents_by(recorded_time, claims)
    yield recorded
    lack_end = [end_ns is None for _, end_ns in recorded]
    read = iter(_extents_by(time_of_records, list(compress(claims, lack_end))))
    read_extents = [next(read) if is_lacking else NO_EXTENT for is_lacking in lack_end]
    yield [
        extent if other == NO_EXTENT else other
        for extent, other in zip(recorded, read_extents, strict=True)
    ]


def _extents_by(time_of: Callable[[Claim], Extent], claims: Sequence[Claim]) -> list[Extent]:
    """Return `time_of` each capture, computed once per file and device."""
    extents: dict[tuple[Capture, int | None], Extent] = {}
    for claim in claims:
        if (claim.capture, claim.device) not in extents:
            whole = claim if claim.device is not None else replace(claim, part=None)
            extents[claim.capture, claim.device] = time_of(whole)
    return [extents[claim.capture, claim.device] for claim in claims]


def _times_in_names(claims: Sequence[Claim]) -> list[Extent] | None:
    """Return the times in names; None unless all have one, in UTC or all in local time."""
    extents = [time_in_name(claim) for claim in claims]
    zones = {claim.capture.format.utc_names for claim in claims}
    are_comparable = len(zones) == 1 and all(start is not None for start, _ in extents)
    return extents if are_comparable else None


def _session(claim: Claim, extent: Extent) -> Session:
    capture = claim.capture
    keys = (claim.rank, claim.clock.host, claim.device, claim.worker)
    return Session(str(capture.directory), *keys, *extent, capture.format.hardware)


def _make_run(
    members: Sequence[Claim], extents: Sequence[Extent], claims: Sequence[Claim]
) -> FoundRun:
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
        _format_start(members, start_ns),
        _path_of_run(members, claims),
        tuple(members),
    )


def _format_start(members: Sequence[Claim], start_ns: int | None) -> str:
    """Format a run's start: as written in the names of its captures, else in UTC."""
    named = [name_ns for name_ns, _ in map(time_in_name, members) if name_ns is not None]
    start_ns = min(named, default=start_ns)
    if start_ns is None:
        return "time not known"
    start = datetime.fromtimestamp(start_ns // 10**9, timezone.utc)
    is_local = named and not members[0].capture.format.utc_names
    return f"{start:%Y-%m-%d %H:%M:%S}{'' if is_local else ' UTC'}"


def _path_of_run(members: Sequence[Claim], claims: Sequence[Claim]) -> Path | None:
    """Return the directory that holds all captures of a run, None if it holds others too."""
    common = _common_directory(claim.capture.directory for claim in members)
    ids = set(map(id, members))
    others = [claim.capture.directory for claim in claims if id(claim) not in ids]
    if any(other == common or common in other.parents for other in others):
        return None
    return common


def _common_directory(directories: Iterable[Path]) -> Path:
    """Return the deepest directory that is, or contains, each of the directories."""
    first, *others = directories
    lineage = [first, *first.parents]
    for other in others:
        parents = {other, *other.parents}
        lineage = [path for path in lineage if path in parents]
    return lineage[0]


def describe_older_runs(runs: Sequence[FoundRun], path: Path) -> list[str]:
    """Return a note on older runs and the commands that read them; nothing for a single run."""
    if len(runs) < 2:
        return []
    older = [f"{run.describe()}: {_advise(run)}" for run in runs[-2::-1][:MOST_RUNS_NAMED]]
    if (more := len(runs) - 1 - MOST_RUNS_NAMED) > 0:
        older.append(f"{more} more: {shlex.join(['tlexport', str(path)])} --list")
    return [
        f"{len(runs)} runs lie in {path}; the newest is read ({runs[-1].describe()}). "
        f"Not read: {'; '.join(older)}."
    ]


def _advise(run: FoundRun) -> str:
    """Return the command that reads a run; if no path holds it alone, advice to move it."""
    if run.path is not None:
        return shlex.join(["tlexport", str(run.path)])
    names = ", ".join(source.name for source in run.sources[:2])
    more = f" and {len(run.sources) - 2} more" if len(run.sources) > 2 else ""
    place = _common_directory(source.parent for source in run.sources)
    return f"put {names}{more} of {place} into a directory of their own"


def runs_of_one_time(runs: Sequence[FoundRun], root: Path) -> RankIdentityError | None:
    """Return an error if several runs have the same, newest time; None otherwise."""
    newest = [run for run in runs if run.group == runs[-1].group]
    if len(newest) < 2:
        return None
    paths = [run.path or run.sources[0] for run in newest]
    top = root.resolve()
    names = [path.relative_to(top) if top in path.parents else path for path in paths]
    listed = [
        f"{name} ({format_ranks(run.ranks)})" for name, run in zip(names, newest, strict=True)
    ]
    if (more := len(newest) - MOST_RUNS_NAMED) > 0:
        listed[MOST_RUNS_NAMED:] = [f"and {more} more"]
    first, second = (str(root / name) for name in names[:2])
    count, which = ("two", "them") if len(newest) == 2 else (str(len(newest)), "two")
    error = RankIdentityError(
        root,
        f"holds {count} runs of the same time: {', '.join(listed)}.",
        do=f"Pass one of them: {shlex.join(['tlexport', first])}, or compare {which}: "
        f"{shlex.join(['tlexport', 'compare', first, second])}",
    )
    error.hints = (
        "All of them: " + shlex.join(["tlexport", str(root), "--list"]),
        "Where they are parts of one run, give each rank its number with --assign-rank DIR=RANK",
    )
    return error


# -- grouping by time ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Session:
    """The rank, device, process, start and end of a capture, as far as known, on a common clock.

    rank, host, worker: None or empty if not known. end_ns: None if only the start, or a time near
    it, is known. hardware: the kind of device.
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
        """Return what only one capture at a time can record: a rank, a card, a process."""
        card = None if self.device is None else (self.host, self.device)
        keys = {"rank": self.rank, "card": card, "worker": self.worker or None}
        return {kind: key for kind, key in keys.items() if key is not None}

    @property
    def first_ns(self) -> int:
        """The start, for sessions that have one."""
        return self.start_ns or 0

    @property
    def last_ns(self) -> int:
        """The end if known, else the start, for sessions that have a start."""
        return self.end_ns or self.first_ns

    def compare_keys(self, other: Session) -> dict[str, bool]:
        """Return, for each kind of key that both sessions have, whether the keys are equal."""
        shared = self.keys.keys() & other.keys.keys()
        return {kind: self.keys[kind] == other.keys[kind] for kind in shared}

    def is_before(self, later: Session) -> bool:
        """Return whether a later session records the same rank, card or process once more.

        If this session's end is not known, another process or card that claims the same rank
        within SAME_RUN_NS is a contradiction inside one run, and not a later run.
        """
        if later.first_ns < self.last_ns or later.first_ns == self.first_ns:
            return False
        equality = self.compare_keys(later)
        return any(equality.values()) and (
            self.end_ns is not None
            or later.first_ns - self.first_ns >= SAME_RUN_NS
            or [kind for kind, is_equal in equality.items() if is_equal] != ["rank"]
            or all(equality.values())
        )


def group_sessions(sessions: Sequence[Session]) -> list[list[int]]:
    """Group sessions into runs, given as ascending positions; runs ordered by their latest start.

    Sessions belong together if they overlap, or if they start within SAME_RUN_NS and are of
    different ranks, cards or processes. Two sessions of the same rank, card or process that do
    not overlap are two runs, however close.
    """
    timed = [at for at, session in enumerate(sessions) if session.start_ns is not None]
    open_runs, runs = list[_Run](), list[_Run]()
    for at in sorted(timed, key=lambda at: (sessions[at].first_ns, sessions[at].path)):
        session = sessions[at]
        start_ns = session.first_ns
        open_runs = [run for run in open_runs if run.accepts_start(start_ns)]
        before = [at for at, run in enumerate(open_runs) if run.is_before(session)]
        candidates = open_runs[before[-1] + 1 if before else 0 :]
        fitting = [run for run in candidates if run.accepts(session)]
        chosen = ([run for run in fitting if start_ns < run.end_ns] or fitting)[-1:]
        if not chosen:
            chosen = [_Run([], [], defaultdict(list))]
            open_runs += chosen
            runs += chosen
        chosen[0].add(at, session)
    runs.sort(key=lambda run: run.sessions[-1].first_ns)
    return _add_undated(sessions, [sorted(run.members) for run in runs])


def _add_undated(sessions: Sequence[Session], runs: list[list[int]]) -> list[list[int]]:
    """Add sessions without a known start to the runs, all sessions of one hardware together.

    They join the newest run if it has the same hardware and none of their ranks, cards or
    processes. Otherwise they become a run of unknown time, which counts as the oldest.
    """
    by_hardware: dict[str, list[int]] = defaultdict(list)
    for at, session in enumerate(sessions):
        if session.start_ns is None:
            by_hardware[session.hardware].append(at)
    newest = runs[-1] if runs else []
    for hardware, timeless in by_hardware.items():
        is_same = {sessions[at].hardware for at in newest} == {hardware}
        taken = {key for at in newest for key in sessions[at].keys.items()}
        if is_same and all(taken.isdisjoint(sessions[at].keys.items()) for at in timeless):
            newest += timeless
            newest.sort()
        else:
            runs.insert(0, timeless)
    return runs


def are_certain(sessions: Sequence[Session], runs: Sequence[Sequence[int]]) -> bool:
    """Return whether more precise times could not change the runs.

    So it is if start and end of all sessions are known. Otherwise each run must be one session or
    sessions of different, known ranks; and successive runs must start at least LONGEST_NS apart,
    have the same ranks, or start SAME_RUN_NS apart with the ranks of one a subset of the other's.
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
        is_subset = one <= other or other <= one
        are_repeated = None not in one | other and (
            one == other or (is_subset and gap_ns >= SAME_RUN_NS)
        )
        if gap_ns < LONGEST_NS and not are_repeated:
            return False
    return True


@dataclass
class _Run:
    """A run under construction, to which sessions are added in order of their starts."""

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

    def accepts_start(self, start_ns: int) -> bool:
        """Return whether a session that starts at this time or later may belong to the run."""
        return start_ns <= self.end_ns or start_ns - self.sessions[-1].first_ns < SAME_RUN_NS

    def is_before(self, session: Session) -> bool:
        """Return whether the run holds an earlier session of the same rank, card or process."""
        same = (one for key in session.keys.items() for one in self.by_key.get(key, ()))
        return any(one.is_before(session) for one in same)

    def accepts(self, session: Session) -> bool:
        """Return whether a session, the latest to start so far, belongs to the run by its time."""
        start_ns = session.first_ns
        if start_ns < self.end_ns or start_ns == self.sessions[-1].first_ns:
            return True
        near = takewhile(lambda one: start_ns - one.first_ns < SAME_RUN_NS, reversed(self.sessions))
        return any(not all(one.compare_keys(session).values()) for one in near)
