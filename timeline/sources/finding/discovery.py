"""From a path to one source per rank of the newest run that lies there.

In order: find what formats recognise (captures), identify each (`identify_capture`), drop what
others hold too (copies), number the ranks of replicas (replicas), group into runs by time (times,
runs), give the captures of the newest run their ranks (ranks). Around all that, what is packed is
unpacked (packed).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from timeline.errors import NoProfileError, SourceError, UsageError, did_you_mean
from timeline.sources import formats
from timeline.sources.beside.source import WithCompanionFiles, with_companions
from timeline.sources.capture import Capture, Claim, Evidence, FormatKind, Root
from timeline.sources.common.msprof_files import find_sessions
from timeline.sources.files.opened import uncompressed_database_name
from timeline.sources.files.remote_path import RemotePath
from timeline.sources.finding.captures import find_captures
from timeline.sources.finding.copies import drop_copies
from timeline.sources.finding.ranks import (
    ResolvedRanks,
    count_ranks_on,
    resolve_ranks,
    tell_apart,
)
from timeline.sources.finding.replicas import ReplicaSource, number_replicas
from timeline.sources.finding.runs import (
    FoundRun,
    describe_older_runs,
    group_into_runs,
    runs_of_one_time,
    spell_ranks,
)
from timeline.sources.source import OUTPUT, Source


@dataclass(frozen=True)
class FindingOptions:
    """What is asked of finding captures, beyond a source for each rank.

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
        """The captures; outputs of profilers that hold nothing are noted, and alone are errors."""
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
        """Who the captures are; those that cannot be identified are left out, where they may."""
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
        """What tells who each capture is; on another file system many are asked at once."""
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
        """The claims with the ranks that they are given.

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
    """Who a capture says it is, a claim for each device in it.

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
    """The id of text or tables beside a session of msprof, if there is but one of each."""
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
    """Which small tables are of a rank that there is no capture of, in any run."""
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
                what = f"{directory.name} holds small tables of {spell_ranks(some)}"
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
