"""Finds one source per rank of the newest run below a path.

The steps, in order: find the captures that any format recognises (captures.py), find out which
ranks each holds (`identify_capture`), drop duplicates and number the ranks of replicas
(copies.py), group captures into runs by time (runs.py), and assign a rank to each capture of the
newest run. packed.py wraps this search and unpacks archives for it.
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from operator import itemgetter
from pathlib import Path

from timeline.errors import NoProfileError, RankIdentityError, SourceError, UsageError, did_you_mean
from timeline.sources import formats
from timeline.sources.capture import NOT_DISTRIBUTED, Capture, Claim, Evidence, FormatKind, Root
from timeline.sources.common.export_files import find_sessions
from timeline.sources.companions.source import WithCompanionFiles, with_companions
from timeline.sources.files.opened import uncompressed_database_name
from timeline.sources.files.remote_path import RemotePath
from timeline.sources.finding.captures import find_captures
from timeline.sources.finding.copies import ReplicaSource, drop_copies, number_replicas
from timeline.sources.finding.runs import (
    FoundRun,
    describe_older_runs,
    format_ranks,
    group_into_runs,
    runs_of_one_time,
)
from timeline.sources.source import OUTPUT, Source

MOST_NAMED = 4
"""Maximum number of captures named in one message."""


@dataclass(frozen=True)
class ResolvedRanks:
    """The captures of a run by rank, and the problems of captures without a usable rank.

    problems: (path, description) of each capture without a usable rank. error: these problems as
    one error. is_partial: whether `ranks` is correct for the remaining captures. notes:
    assumptions that were made.
    """

    ranks: Mapping[int, Claim]
    problems: tuple[tuple[Path, str], ...] = ()
    error: RankIdentityError | None = None
    is_partial: bool = False
    notes: tuple[str, ...] = ()


def number_devices_of_processes(claims: Sequence[Claim]) -> list[Claim]:
    """Give each device of a process a rank of its own, if the process states only one rank.

    The first device gets the stated rank, further devices of the same file the ranks after it.
    """
    numbered, devices = list(claims), Counter[tuple[Path, int | None]]()
    for at, claim in enumerate(claims):
        if claim.part is not None and claim.device is not None:
            key = claim.capture.content, claim.rank
            numbered[at] = _shift_rank(claim, devices[key])
            devices[key] += 1
    return numbered


def _shift_rank(claim: Claim, by: int) -> Claim:
    evidence = (Evidence(one.rank + by, one.where, one.shift + by) for one in claim.evidence)
    return replace(claim, evidence=tuple(evidence))


def resolve_ranks(claims: Sequence[Claim], path: Path) -> ResolvedRanks:
    """Return the rank of each capture of a run.

    If no capture states a rank, the run is not distributed, and captures are numbered by host,
    device and path. Otherwise it is a problem if a capture states no rank or several, or if two
    captures state the same rank.

    path: the directory or file that was searched; errors name it in the commands they suggest.
    """
    if not any(claim.evidence for claim in claims):
        return _number_in_order(claims) if claims else ResolvedRanks({})
    claims = _move_shifted_ranks(claims)
    by_rank: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.rank is not None:
            by_rank[claim.rank].append(claim)
    by_rank = dict(sorted(by_rank.items()))
    places, error = name_uniquely(claims, "path", "file"), None
    unranked = sorted((claim for claim in claims if claim.rank is None), key=_order)
    unranked.sort(key=lambda claim: not claim.evidence)  # contradictions first
    no_rank = f"states no rank, while others of its run are {format_ranks(by_rank)}."
    problems = [
        (one, f"contradictory rank ids: {one.contradiction}." if one.evidence else no_rank)
        for one in unranked
    ]
    shared = {rank: same for rank, same in by_rank.items() if len(same) > 1}
    for rank, same in shared.items():
        for one in same:
            others = [places[id(other)] for other in same[: MOST_NAMED + 1] if other is not one]
            names = ", ".join(others[:MOST_NAMED])
            names += f" and {len(same) - 1 - MOST_NAMED} more" if len(same) > MOST_NAMED + 1 else ""
            problems.append((one, f"is rank {rank} by {one.evidence[0].where}, as {names} is."))
    if unranked:
        first, problem = problems[0]
        ask = "Assign the right one:" if first.evidence else "Assign it a rank, as in:"
        do = f"{ask} {_assign_command(path, unranked, claims)}"
        error = RankIdentityError(Path(places[id(first)]), problem, do=do)
    elif shared:
        rank, same = next(iter(shared.items()))
        ways = "; ".join(
            f"{places[id(one)]} by {one.evidence[0].where}" for one in same[:MOST_NAMED]
        )
        further = [one for same in shared.values() for one in same[1:]]
        error = RankIdentityError(
            path,
            f"rank {rank} appears twice, in captures of one time: {ways}. Using neither.",
            do=f"Pass one of them: {shlex.join(['tlexport', str(same[-1].capture.directory)])}; or "
            f"give the others ranks of their own: {_assign_command(path, further, claims)}",
        )
    return ResolvedRanks(
        {rank: same[0] for rank, same in by_rank.items() if rank not in shared},
        tuple((Path(places[id(claim)]), problem) for claim, problem in problems),
        error,
        is_partial=not shared,
        notes=() if shared else tuple(_notes_on_parts(claims)),
    )


def _number_in_order(claims: Sequence[Claim]) -> ResolvedRanks:
    ordered = sorted(claims, key=_order)
    names = [claim.capture.directory.name for claim in ordered]
    names = [
        name if claim.device is None else f"{name} (device {claim.device})"
        for name, claim in zip(names, ordered, strict=True)
    ]
    ranks = _format_ranks_of(names, range(len(names)))
    if len(ordered) == 1:
        return ResolvedRanks(
            {0: ordered[0]}, notes=(f"the capture states no rank ({NOT_DISTRIBUTED}): {ranks}.",)
        )
    note = (
        f"the captures state no rank ({NOT_DISTRIBUTED}), so they are numbered in order of host, "
        f"device and path: {ranks}."
    )
    return ResolvedRanks(dict(enumerate(ordered)), notes=(note,))


def _format_ranks_of(names: Sequence[str], ranks: Sequence[int]) -> str:
    """Format the rank of each name; of more than MOST_NAMED, the first ones and the last rank."""
    pairs = zip(names, ranks[:MOST_NAMED], strict=False)
    listed = [f"{name} is rank {rank}" for name, rank in pairs]
    more = [f"and so on up to rank {ranks[-1]}"] if len(ranks) > MOST_NAMED else []
    return ", ".join(listed + more)


def _order(claim: Claim) -> tuple[str, int, str]:
    device = -1 if claim.device is None else claim.device
    return claim.clock.host, device, str(claim.capture.directory)


def _move_shifted_ranks(claims: Sequence[Claim]) -> list[Claim]:
    """Move each rank with a shift to the next rank that no capture has.

    Ranks that captures state themselves are kept.
    """
    shifted = {id(one): one for one in claims if one.evidence and one.evidence[0].shift}
    taken = {one.rank for one in claims if id(one) not in shifted}
    ranked = [(one.rank, one) for one in shifted.values() if one.rank is not None]
    moved, free = dict[int, Claim](), 0
    for rank, claim in sorted(ranked, key=itemgetter(0)):
        free = max(rank, free)
        while free in taken:
            free += 1
        moved[id(claim)] = _shift_rank(claim, free - rank)
        free += 1
    return [moved.get(id(claim), claim) for claim in claims]


def _notes_on_parts(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield a note on each file that holds several ranks without stating each of them."""
    parts: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.part is not None:
            parts[claim.capture.content].append(claim)
    for _, same in sorted(parts.items()):
        ranks = [one.rank for one in same if one.rank is not None]
        is_merged = any(one.part is not None and one.part.processes for one in same)
        is_shifted = any(evidence.shift for one in same for evidence in one.evidence)
        if len(same) == len(ranks) > 1 and (is_merged or is_shifted):
            what = "traces that were merged" if is_merged else "devices of one process"
            names = [one.part.name for one in same if one.part is not None]
            listed = _format_ranks_of(names, ranks)
            yield f"{same[0].capture.directory.name} holds {len(same)} {what}: {listed}."


def name_uniquely(claims: Sequence[Claim], *keys: str) -> dict[int, str]:
    """Return a name for each claim, by the claim's id().

    The name is the value of the first of the properties in which no other claim has the same
    value, else of the last one.
    """
    counts = {key: Counter(getattr(claim, key) for claim in claims) for key in keys}
    return {
        id(claim): next(
            name for key in keys if counts[key][name := getattr(claim, key)] == 1 or key == keys[-1]
        )
        for claim in claims
    }


def _assign_command(path: Path, unclear: Sequence[Claim], claims: Sequence[Claim]) -> str:
    """Return a command that assigns ranks to unclear captures.

    Of captures that state several ranks, the first; of others, ranks that no capture has.
    """
    names = name_uniquely(claims, "name", "path", "file")
    taken = {claim.rank for claim in claims}
    free = (rank for rank in count() if rank not in taken)
    words = ["tlexport", str(path)]
    for claim in unclear[:MOST_NAMED]:
        rank = claim.evidence[0].rank if claim.contradiction else next(free)
        words += ["--assign-rank", f"{names[id(claim)]}={rank}"]
    rest = len(unclear) - MOST_NAMED
    return shlex.join(words) + (f" ... (and {rest} more)" if rest > 0 else "")


# -- discovery -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FindingOptions:
    """Options of a search for captures.

    keep_going: skip captures that cannot be identified and directories that cannot be read, as
    long as another capture is found. lists_all: collect the problems of captures instead of
    raising them. of_several: the profile is one of several, and a capture that is assigned a rank
    may be in another one.
    """

    keep_going: bool = False
    lists_all: bool = False
    of_several: bool = False


_EMPTY = f"holds nothing that can be read in {OUTPUT}."
FIND_FOR_EXPORT = FindingOptions()
"""Options for the export of one profile."""


@dataclass(frozen=True)
class UnclearCapture:
    """The path of a capture that cannot be read as a rank, and the reason."""

    path: Path
    problem: str


@dataclass(frozen=True)
class Discovered:
    """One source per rank of the newest run, in ascending order, and all runs that were found.

    notes: sentences on assumptions and on skipped files. runs: all runs, oldest first. unclear:
    captures without a source. unassigned: names that were assigned a rank but fit no capture.
    """

    sources: tuple[Source, ...]
    notes: tuple[str, ...]
    runs: tuple[FoundRun, ...] = ()
    unclear: tuple[UnclearCapture, ...] = ()
    unassigned: frozenset[str] = frozenset()


def discover(
    path: Path,
    assigned: Mapping[str, int] | None = None,
    *,
    finding: FindingOptions = FIND_FOR_EXPORT,
    above: tuple[Path, ...] | None = None,
    unpack: Callable[[Path], Path] | None = None,
) -> Discovered:
    """Find the profile of every rank of the newest run at, below or around a path.

    Args:
        path: a capture, a file inside one, or any directory around captures.
        assigned: rank by directory, as given with --assign-rank.
        finding: options of the search.
        above: the original parent directories, if the path is a temporary copy.
        unpack: unpacks a compressed database and returns the path of the unpacked file.

    Raises:
        NoProfileError: no profile was found.
        RankIdentityError: captures state contradictory or duplicate ranks, or only some state one.
        UsageError: an assigned directory is not among the captures.
    """
    return _Search(Root(path, above), finding, unpack).run(assigned or {})


class _Search:
    """One search for captures, which collects notes and problems."""

    def __init__(
        self, root: Root, finding: FindingOptions, unpack: Callable[[Path], Path] | None
    ) -> None:
        self._root, self._finding, self._unpack = root, finding, unpack
        self._notes: list[str] = []
        self._unclear: list[UnclearCapture] = []
        self._unassigned: frozenset[str] = frozenset()
        self._tables: tuple[Capture, ...] = ()

    def run(self, assigned: Mapping[str, int]) -> Discovered:
        """Find and identify all captures, and open the captures of the newest run."""
        numbered = number_devices_of_processes(self._claims(self._captures()))
        identified = self._assign_ranks(numbered, assigned)
        claims, notes = drop_copies(identified)
        self._notes += notes
        runs = group_into_runs(number_replicas(claims), with_times=self._finding.lists_all)
        if not self._finding.lists_all and (error := runs_of_one_time(runs, self._root.path)):
            raise error
        newest = resolve_ranks(runs[-1].claims if runs else (), self._root.path)
        self._check(newest)
        if not self._finding.lists_all:
            self._notes += describe_older_runs(runs, self._root.path)
        self._notes += newest.notes
        self._notes += dict.fromkeys(one.note for one in newest.ranks.values() if one.note)
        sources = tuple(_open(claim, rank) for rank, claim in sorted(newest.ranks.items()))
        kept = set(map(id, claims))  # by id, as comparing all claims would take quadratic time
        dropped = {one.capture.content for one in identified if id(one) not in kept}
        tables = [one for one in self._tables if one.content not in dropped]
        self._notes += _notes_on_tables(tables, sources, claims)
        return Discovered(
            sources, tuple(self._notes), tuple(runs), tuple(self._unclear), self._unassigned
        )

    def _captures(self) -> Sequence[Capture]:
        """Return all captures; note empty outputs of profilers, or raise if all are empty."""
        may_fail = self._finding.keep_going or self._finding.lists_all
        unreadable: list[SourceError] | None = [] if may_fail else None
        search = find_captures(self._root.path, unreadable)
        self._notes += search.remarks
        self._tables = search.tables
        self._notes += [f"left out: {error}" for error in unreadable or ()]
        if not search.captures:
            raise NoProfileError(
                search.empty[0], _EMPTY, do="Parse the profile again, or copy all of it."
            )
        self._notes += [f"{directory.name} {_EMPTY}" for directory in search.empty]
        return search.captures

    def _claims(self, captures: Sequence[Capture]) -> list[Claim]:
        """Identify captures; skip those that cannot be identified, if the options allow it."""
        claims: list[Claim] = []
        for capture, identified in zip(captures, self._identified(captures), strict=True):
            try:
                claims += identified()
            except SourceError as error:
                if self._finding.lists_all:
                    self._unclear.append(UnclearCapture(capture.directory, str(error)))
                elif not self._finding.keep_going:
                    if len(captures) > 1:
                        error.offer_others()
                    raise
                elif capture is captures[-1] and not claims:
                    raise
                else:
                    self._notes.append(f"{capture.directory.name} is left out: {error}")
        return claims

    def _identified(self, captures: Sequence[Capture]) -> Iterator[Callable[[], list[Claim]]]:
        """Yield a function per capture that identifies it; remote ones are read in parallel."""
        if not isinstance(self._root.path, RemotePath):
            yield from (partial(self._identify, capture) for capture in captures)
            return
        from concurrent.futures import ThreadPoolExecutor

        from timeline.sources.files.remote_tree import REQUESTS_AT_ONCE

        with ThreadPoolExecutor(REQUESTS_AT_ONCE) as threads:
            for identified in [threads.submit(self._identify, capture) for capture in captures]:
                yield identified.result

    def _identify(self, capture: Capture) -> list[Claim]:
        content = capture.content
        if capture.format.packed and uncompressed_database_name(content.name) != content.name:
            if self._unpack is None:
                raise SourceError(content, "is compressed.", do="Unpack it first.")
            capture = replace(capture, unpacked=self._unpack(content))
        return identify_capture(capture, self._root)

    def _assign_ranks(self, claims: list[Claim], assigned: Mapping[str, int]) -> list[Claim]:
        """Return the claims with the ranks of --assign-rank.

        A name may fit several captures if they belong to different runs.
        """
        ranked = list(claims)
        for name, rank in assigned.items():
            hits = [at for at, claim in enumerate(claims) if claim.is_named(name)]
            if not hits:
                if not self._finding.of_several:
                    names = sorted({claim.capture.directory.name for claim in claims})
                    raise UsageError(
                        f"--assign-rank {name}={rank}: there is no such capture in "
                        f"{self._root.path}{did_you_mean(name, names)}",
                        do=f"Name one of {', '.join(names)}.",
                    )
                self._unassigned |= {name}
            for at in hits:
                ranked[at] = claims[at].with_rank(rank)
            _check_one_of_a_run(name, rank, [claims[at] for at in hits])
        return ranked

    def _check(self, newest: ResolvedRanks) -> None:
        """Raise the error of the newest run, or collect its problems if the options say so."""
        if self._finding.lists_all:
            self._unclear += [UnclearCapture(path, problem) for path, problem in newest.problems]
            return
        if newest.error is None:
            return
        if not self._finding.keep_going or not newest.ranks or not newest.is_partial:
            raise newest.error
        self._notes += [f"{path} is left out: {problem}" for path, problem in newest.problems]


def identify_capture(capture: Capture, root: Root) -> list[Claim]:
    """Return a claim for each device in a capture.

    If neither the files nor the names of the capture state a rank, text files or tables in its
    parent directory may, which a framework derived from it.

    Raises:
        SourceError: a file that states the rank cannot be read.
    """
    claims = capture.format.identify(capture, root)
    if len(claims) > 1 or claims[0].evidence or capture.format.shares_directory:
        return claims
    return [replace(claims[0], evidence=_evidence_in_parent(capture))]


def _evidence_in_parent(capture: Capture) -> tuple[Evidence, ...]:
    """Return the id of text files or tables in the directory that holds a session of msprof.

    Only if that directory holds a single session, and its files a single id.
    """
    parent = capture.directory.parent
    if sum(1 for path in find_sessions(parent) if path.is_dir()) != 1:
        return ()
    for kind, noun in ((FormatKind.TEXT, "text files"), (FormatKind.STEPS, "tables")):
        readers = [one.ids for one in formats.FORMATS if one.kind is kind and one.ids is not None]
        numbers = {number for read_ids in readers for number in read_ids(parent)}
        if len(numbers) == 1:
            return (Evidence(numbers.pop(), f"the {noun} beside it"),)
    return ()


def _notes_on_tables(
    tables: Sequence[Capture], sources: Sequence[Source], claims: Sequence[Claim]
) -> Iterator[str]:
    """Yield a note on each directory with small tables that no source reads."""
    captured = {claim.rank for claim in claims} | {claim.capture.device for claim in claims}
    read = {
        (directory, one.number)
        for one in sources
        if isinstance(one, WithCompanionFiles)
        for directory in one.hosts
    }
    unread: dict[Path, set[int]] = defaultdict(set)
    for one in tables:
        if one.device is not None and (one.content, one.device) not in read:
            unread[one.content].add(one.device)
    for directory, numbers in unread.items():
        for ranks, why in (
            (numbers - captured, "of which there is no capture"),
            (numbers & captured, "apart from its capture"),
        ):
            if ranks:
                what = f"{directory.name} holds small tables of {format_ranks(ranks)}"
                yield f"{what}, {why}; they were not read."


def _check_one_of_a_run(name: str, rank: int, hits: Sequence[Claim]) -> None:
    for run in group_into_runs(hits) if len(hits) > 1 else ():
        if len(run.claims) > 1:
            names = name_uniquely(run.claims, "name", "path", "file").values()
            raise UsageError(
                f"--assign-rank {name}={rank} fits several captures of one run: "
                f"{', '.join(names)}.",
                do="Write one of these instead, for each that has no rank.",
            )


def _open(claim: Claim, rank: int) -> Source:
    source = claim.capture.format.open(claim, rank)
    source = with_companions(source, claim.capture, claim.several)
    replica = claim.replica
    return source if replica is None or not replica.first else ReplicaSource(source, replica)
