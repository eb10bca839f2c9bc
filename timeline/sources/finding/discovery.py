"""Finds one source per rank of the newest run below a path.

In order: find what formats recognise (captures), identify each (`identify_capture`), drop
duplicates (copies), number the ranks of replicas (copies), group into runs by time (runs), and
give the captures of the newest run their ranks. Around all that, packed files are unpacked
(packed).
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
"""So many captures are named in one message."""


@dataclass(frozen=True)
class ResolvedRanks:
    """The captures of a run by rank, and what is wrong with the others.

    problems: by capture, what is wrong with it. error: all of that as one error. is_partial:
    whether the ranks are right without those. notes: what was assumed.
    """

    ranks: Mapping[int, Claim]
    problems: tuple[tuple[Path, str], ...] = ()
    error: RankIdentityError | None = None
    is_partial: bool = False
    notes: tuple[str, ...] = ()


def count_ranks_on(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with a rank of its own for each device of a process that tells one rank.

    The devices are numbered in the order in which they are given, from that rank on.
    """
    made, counted = list(claims), Counter[tuple[Path, int | None]]()
    for at, claim in enumerate(claims):
        if claim.part is not None and claim.device is not None:
            key = claim.capture.content, claim.rank
            made[at] = _counted_on(claim, counted[key])
            counted[key] += 1
    return made


def _counted_on(claim: Claim, by: int) -> Claim:
    evidence = (Evidence(one.rank + by, one.where, one.counted + by) for one in claim.evidence)
    return replace(claim, evidence=tuple(evidence))


def resolve_ranks(claims: Sequence[Claim], path: Path) -> ResolvedRanks:
    """Return the rank of each capture of a run.

    Captures of which none tells a rank are not distributed: they are numbered by host, device and
    path. Beside captures that tell one, and where two tell the same or one tells two, it is not
    known which they are.

    path: where they were found, for the commands that errors name.
    """
    if not any(claim.evidence for claim in claims):
        return _number_in_order(claims) if claims else ResolvedRanks({})
    claims = _with_free_ranks(claims)
    by_rank: dict[int, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.rank is not None:
            by_rank[claim.rank].append(claim)
    known = dict(sorted(by_rank.items()))
    places, error = tell_apart(claims, "path", "file"), None
    nameless = sorted((claim for claim in claims if claim.rank is None), key=_order)
    nameless.sort(key=lambda claim: not claim.evidence)  # contradictions first
    told = f"tells no rank, while others of its run are {format_ranks(known)}."
    problems = [
        (one, f"contradictory rank ids: {one.contradiction}." if one.evidence else told)
        for one in nameless
    ]
    shared = {rank: same for rank, same in known.items() if len(same) > 1}
    for rank, same in shared.items():
        for one in same:
            others = [places[id(other)] for other in same[: MOST_NAMED + 1] if other is not one]
            said = ", ".join(others[:MOST_NAMED])
            said += f" and {len(same) - 1 - MOST_NAMED} more" if len(same) > MOST_NAMED + 1 else ""
            problems.append((one, f"is rank {rank} by {one.evidence[0].where}, as {said} is."))
    if nameless:
        first, said = problems[0]
        ask = "Say which is right:" if first.evidence else "Say which it is, as in:"
        do = f"{ask} {_assign_command(path, nameless, claims)}"
        error = RankIdentityError(Path(places[id(first)]), said, do=do)
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
        {rank: same[0] for rank, same in known.items() if rank not in shared},
        tuple((Path(places[id(claim)]), said) for claim, said in problems),
        error,
        is_partial=not shared,
        notes=() if shared else tuple(_notes_on_parts(claims)),
    )


def _number_in_order(claims: Sequence[Claim]) -> ResolvedRanks:
    ordered = sorted(claims, key=_order)
    named = [claim.capture.directory.name for claim in ordered]
    named = [
        name if claim.device is None else f"{name} (device {claim.device})"
        for name, claim in zip(named, ordered, strict=True)
    ]
    said = _format_some(named, range(len(named)))
    if len(ordered) == 1:
        return ResolvedRanks(
            {0: ordered[0]}, notes=(f"the capture tells no rank ({NOT_DISTRIBUTED}): {said}.",)
        )
    note = (
        f"the captures tell no rank ({NOT_DISTRIBUTED}), so they are numbered in order of host, "
        f"device and path: {said}."
    )
    return ResolvedRanks(dict(enumerate(ordered)), notes=(note,))


def _format_some(names: Sequence[str], ranks: Sequence[int]) -> str:
    """Spell which rank each of some names is, of many the first ones and the last rank."""
    said = [f"{name} is rank {rank}" for name, rank in zip(names, ranks[:MOST_NAMED], strict=False)]
    more = [f"and so on up to rank {ranks[-1]}"] if len(ranks) > MOST_NAMED else []
    return ", ".join(said + more)


def _order(claim: Claim) -> tuple[str, int, str]:
    device = -1 if claim.device is None else claim.device
    return claim.clock.host, device, str(claim.capture.directory)


def _with_free_ranks(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with each rank that was counted on moved to the next free one.

    Ranks that captures tell themselves are never free.
    """
    counted = {id(one): one for one in claims if one.evidence and one.evidence[0].counted}
    taken = {one.rank for one in claims if id(one) not in counted}
    ranked = [(one.rank, one) for one in counted.values() if one.rank is not None]
    moved, free = dict[int, Claim](), 0
    for rank, claim in sorted(ranked, key=itemgetter(0)):
        free = max(rank, free)
        while free in taken:
            free += 1
        moved[id(claim)] = _counted_on(claim, free - rank)
        free += 1
    return [moved.get(id(claim), claim) for claim in claims]


def _notes_on_parts(claims: Sequence[Claim]) -> Iterator[str]:
    """Return which ranks the parts of captures are that do not tell that themselves."""
    parts: dict[Path, list[Claim]] = defaultdict(list)
    for claim in claims:
        if claim.part is not None:
            parts[claim.capture.content].append(claim)
    for _, same in sorted(parts.items()):
        ranks = [one.rank for one in same if one.rank is not None]
        is_merged = any(one.part is not None and one.part.processes for one in same)
        is_counted = any(said.counted for one in same for said in one.evidence)
        if len(same) == len(ranks) > 1 and (is_merged or is_counted):
            what = "traces that were merged" if is_merged else "devices of one process"
            said = _format_some([one.part.name for one in same if one.part is not None], ranks)
            yield f"{same[0].capture.directory.name} holds {len(same)} {what}: {said}."


def tell_apart(claims: Sequence[Claim], *ways: str) -> dict[int, str]:
    """Return a name of each claim, by its id(): the first of some that no other claim has.

    ways: properties of claims that hold names, the last of which is taken in any case.
    """
    held = {way: Counter(getattr(claim, way) for claim in claims) for way in ways}
    return {
        id(claim): next(
            name for way in ways if held[way][name := getattr(claim, way)] == 1 or way == ways[-1]
        )
        for claim in claims
    }


def _assign_command(path: Path, asked: Sequence[Claim], claims: Sequence[Claim]) -> str:
    """Return the command that gives captures ranks: those that they tell, or free ones."""
    names = tell_apart(claims, "name", "path", "file")
    taken = {claim.rank for claim in claims}
    free = (rank for rank in count() if rank not in taken)
    words = ["tlexport", str(path)]
    for claim in asked[:MOST_NAMED]:
        rank = claim.evidence[0].rank if claim.contradiction else next(free)
        words += ["--assign-rank", f"{names[id(claim)]}={rank}"]
    rest = len(asked) - MOST_NAMED
    return shlex.join(words) + (f" ... (and {rest} more)" if rest > 0 else "")


# -- discovery -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FindingOptions:
    """Options for finding captures, beyond a source for each rank.

    keep_going: pass over captures that cannot be identified, and over directories that cannot be
    read, as long as there is another capture. lists_all: tell what is wrong with a capture instead
    of raising it. of_several: captures that ranks are assigned to may lie in another profile.
    """

    keep_going: bool = False
    lists_all: bool = False
    of_several: bool = False


_EMPTY = f"holds nothing that can be read in {OUTPUT}."
FIND_FOR_EXPORT = FindingOptions()
"""What an export of one profile asks."""


@dataclass(frozen=True)
class UnclearCapture:
    """A capture that no source is made of: where it lies, and what is wrong."""

    path: Path
    problem: str


@dataclass(frozen=True)
class Discovered:
    """One source per rank of the newest run, ascending, and what else was found.

    notes: what was assumed and passed over. runs: all that lie there, oldest first. unclear: what
    has no source. unassigned: what was given a rank and is not there.
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
        path: a capture, a file of one, or any directory around one.
        assigned: rank by directory, as given with --assign-rank.
        finding: what else is asked for.
        above: the directories above the path, where it is a copy that lies elsewhere.
        unpack: unpacks a compressed database and tells where to.

    Raises:
        NoProfileError: there is none.
        RankIdentityError: ranks are contradicted, taken twice, or told by some captures only.
        UsageError: an assigned directory is not among the captures.
    """
    return _Search(Root(path, above), finding, unpack).run(assigned or {})


class _Search:
    """One search for captures; notes gather on the way."""

    def __init__(
        self, root: Root, finding: FindingOptions, unpack: Callable[[Path], Path] | None
    ) -> None:
        self._root, self._finding, self._unpack = root, finding, unpack
        self._notes: list[str] = []
        self._unclear: list[UnclearCapture] = []
        self._unassigned: frozenset[str] = frozenset()
        self._tables: tuple[Capture, ...] = ()

    def run(self, assigned: Mapping[str, int]) -> Discovered:
        """Find and identify the captures, and open those of the newest run."""
        found = count_ranks_on(self._claims(self._captures()))
        identified = self._with_assigned_ranks(found, assigned)
        claims, of_copies = drop_copies(identified)
        self._notes += of_copies
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
        kept = set(map(id, claims))  # to compare claims takes the square of their number
        passed = {one.capture.content for one in identified if id(one) not in kept}
        tables = [one for one in self._tables if one.content not in passed]
        self._notes += _notes_on_tables(tables, sources, claims)
        return Discovered(
            sources, tuple(self._notes), tuple(runs), tuple(self._unclear), self._unassigned
        )

    def _captures(self) -> Sequence[Capture]:
        """Return the captures; empty outputs of profilers are noted, and errors if alone."""
        may_fail = self._finding.keep_going or self._finding.lists_all
        unreadable: list[SourceError] | None = [] if may_fail else None
        found = find_captures(self._root.path, unreadable)
        self._notes += found.remarks
        self._tables = found.tables
        self._notes += [f"left out: {error}" for error in unreadable or ()]
        if not found.captures:
            raise NoProfileError(
                found.empty[0], _EMPTY, do="Parse the profile again, or copy all of it."
            )
        self._notes += [f"{directory.name} {_EMPTY}" for directory in found.empty]
        return found.captures

    def _claims(self, captures: Sequence[Capture]) -> list[Claim]:
        """Identify captures; those that cannot be identified are left out, where they may."""
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
        """Identify each capture; on another file system many are asked at once."""
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

    def _with_assigned_ranks(self, claims: list[Claim], assigned: Mapping[str, int]) -> list[Claim]:
        """Return the claims with the ranks that they are given.

        A name that fits several captures is that of each, if they are of different runs.
        """
        made = list(claims)
        for name, rank in assigned.items():
            hits = [at for at, claim in enumerate(claims) if claim.is_named(name)]
            if not hits:
                if not self._finding.of_several:
                    known = sorted({claim.capture.directory.name for claim in claims})
                    raise UsageError(
                        f"--assign-rank {name}={rank}: there is no such capture in "
                        f"{self._root.path}{did_you_mean(name, known)}",
                        do=f"Name one of {', '.join(known)}.",
                    )
                self._unassigned |= {name}
            for at in hits:
                made[at] = claims[at].with_rank(rank)
            _check_one_of_a_run(name, rank, [claims[at] for at in hits])
        return made

    def _check(self, found: ResolvedRanks) -> None:
        """Raise what is wrong with the newest run, or tell it in some other way."""
        if self._finding.lists_all:
            self._unclear += [UnclearCapture(path, said) for path, said in found.problems]
            return
        if found.error is None:
            return
        if not self._finding.keep_going or not found.ranks or not found.is_partial:
            raise found.error
        self._notes += [f"{path} is left out: {said}" for path, said in found.problems]


def identify_capture(capture: Capture, root: Root) -> list[Claim]:
    """Identify a capture by a claim for each device in it.

    Where neither its files nor its names tell a rank, the text that a framework made of it and
    left beside it may.

    Raises:
        SourceError: a file that tells it cannot be read.
    """
    claims = capture.format.identify(capture, root)
    if len(claims) > 1 or claims[0].evidence or capture.format.lies_beside:
        return claims
    return [replace(claims[0], evidence=_evidence_beside(capture))]


def _evidence_beside(capture: Capture) -> tuple[Evidence, ...]:
    """Return the id of text or tables beside a session of msprof, if there is one of each."""
    parent = capture.directory.parent
    if sum(1 for path in find_sessions(parent) if path.is_dir()) != 1:
        return ()
    for kind, noun in ((FormatKind.TEXT, "text files"), (FormatKind.STEPS, "tables")):
        known = [one.ids for one in formats.FORMATS if one.kind is kind and one.ids is not None]
        numbers = {number for ids in known for number in ids(parent)}
        if len(numbers) == 1:
            return (Evidence(numbers.pop(), f"the {noun} beside it"),)
    return ()


def _notes_on_tables(
    tables: Sequence[Capture], sources: Sequence[Source], claims: Sequence[Claim]
) -> Iterator[str]:
    """Return notes on small tables of ranks without a capture in any run."""
    known = {claim.rank for claim in claims} | {claim.capture.device for claim in claims}
    read = {
        (directory, one.number)
        for one in sources
        if isinstance(one, WithCompanionFiles)
        for directory in one.hosts
    }
    left: dict[Path, set[int]] = defaultdict(set)
    for one in tables:
        if one.device is not None and (one.content, one.device) not in read:
            left[one.content].add(one.device)
    for directory, numbers in left.items():
        for some, why in (
            (numbers - known, "of which there is no capture"),
            (numbers & known, "apart from its capture"),
        ):
            if some:
                what = f"{directory.name} holds small tables of {format_ranks(some)}"
                yield f"{what}, {why}; they were not read."


def _check_one_of_a_run(name: str, rank: int, hits: Sequence[Claim]) -> None:
    for run in group_into_runs(hits) if len(hits) > 1 else ():
        if len(run.claims) > 1:
            names = tell_apart(run.claims, "name", "path", "file").values()
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
