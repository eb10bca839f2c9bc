"""Turns a path into one source per rank of the newest run that lies there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from timeline.errors import SourceError, UsageError, did_you_mean
from timeline.sources.common.identity import Claim, Root, claims_of
from timeline.sources.companions.companions import with_companions
from timeline.sources.files.opened import plain_database
from timeline.sources.finding.captures import find_captures
from timeline.sources.finding.copies import without_twins
from timeline.sources.finding.found_runs import FoundRun, found_runs, note_of_runs
from timeline.sources.finding.settled_ranks import Settled, settled
from timeline.sources.formats import nothing_in, source_of
from timeline.sources.source import Capture, Layout, Source

__all__ = ["EXPORT", "Discovered", "Finding", "Unclear", "discover"]


@dataclass(frozen=True)
class Finding:
    """What is asked of finding captures, beyond a source for each rank.

    keep_going: pass over captures that cannot be identified, and over directories that cannot be
    read, as long as there is another capture. lists_all: tell what is wrong with a capture instead
    of raising it. of_several: captures that ranks are assigned to may lie in another profile.
    """

    keep_going: bool = False
    lists_all: bool = False
    of_several: bool = False


EXPORT = Finding()
"""What an export of one profile asks."""


@dataclass(frozen=True)
class Unclear:
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
    unclear: tuple[Unclear, ...] = ()
    unassigned: frozenset[str] = frozenset()


def discover(
    path: Path,
    assigned: Mapping[str, int] | None = None,
    *,
    finding: Finding = EXPORT,
    above: tuple[Path, ...] | None = None,
    unpacked: Callable[[Path], Path] | None = None,
) -> Discovered:
    """Find the profile of every rank of the newest run at, below or around a path.

    Args:
        path: a capture, a file of one, or any directory around one.
        assigned: rank by directory, as given with --assign-rank.
        finding: what else is asked for.
        above: the directories above the path, where it is a copy that lies elsewhere.
        unpacked: unpacks a compressed database and tells where to.

    Raises:
        NoProfileError: there is none.
        RankIdentityError: ranks are contradicted, taken twice, or told by some captures only.
        UsageError: an assigned directory is not among the captures.
    """
    return _Search(Root(path, above), finding, unpacked).found(assigned or {})


class _Search:
    """One search for captures; notes gather on the way."""

    def __init__(
        self, root: Root, finding: Finding, unpacked: Callable[[Path], Path] | None
    ) -> None:
        self._root, self._finding, self._unpacked = root, finding, unpacked
        self._notes: list[str] = []
        self._unclear: list[Unclear] = []
        self._unassigned: frozenset[str] = frozenset()

    def found(self, assigned: Mapping[str, int]) -> Discovered:
        """All that was found."""
        claims = self._assigned(self._claims(), assigned)
        claims, notes = without_twins(claims)
        self._notes += notes
        runs = found_runs(claims, with_times=self._finding.lists_all)
        if not runs:
            return Discovered((), tuple(self._notes), (), tuple(self._unclear), self._unassigned)
        newest = settled(runs[-1].claims, self._root.path)
        self._check(newest)
        if not self._finding.lists_all:
            self._notes += note_of_runs(runs, self._root.path)
        if newest.note:
            self._notes.append(newest.note)
        return Discovered(
            tuple(_source(claim, rank) for rank, claim in sorted(newest.ranks.items())),
            tuple(self._notes),
            tuple(runs),
            tuple(self._unclear),
            self._unassigned,
        )

    def _claims(self) -> list[Claim]:
        may_fail = self._finding.keep_going or self._finding.lists_all
        unreadable: list[SourceError] | None = [] if may_fail else None
        remarks: list[str] = []
        captures = find_captures(self._root.path, unreadable, remarks)
        self._notes += remarks
        self._notes += [f"left out: {error}" for error in unreadable or ()]
        captures = self._without_empty(captures)
        claims: list[Claim] = []
        for capture in captures:
            try:
                claims += claims_of(self._plain(capture), self._root)
            except SourceError as error:
                if self._finding.lists_all:
                    self._unclear.append(Unclear(capture.directory, str(error)))
                elif not self._finding.keep_going or (capture is captures[-1] and not claims):
                    raise
                else:
                    self._notes.append(f"{capture.directory.name} is left out: {error}")
        return claims

    def _without_empty(self, captures: list[Capture]) -> list[Capture]:
        """Pass over the outputs of profilers that hold nothing; alone they are errors."""
        kept = [capture for capture in captures if capture.layout is not Layout.EMPTY]
        empty = [capture for capture in captures if capture.layout is Layout.EMPTY]
        if empty and not kept:
            raise nothing_in(empty[0])
        self._notes += [
            f"{own.directory.name} holds nothing that can be read in {own.content.name}."
            for own in empty
        ]
        return kept

    def _plain(self, capture: Capture) -> Capture:
        is_packed = plain_database(capture.content.name) != capture.content.name
        if capture.layout is not Layout.DATABASE or not is_packed:
            return capture
        if self._unpacked is None:
            raise SourceError(capture.content, "is compressed.", do="Unpack it first.")
        return replace(capture, unpacked=self._unpacked(capture.content))

    def _assigned(self, claims: list[Claim], assigned: Mapping[str, int]) -> list[Claim]:
        """The claims with the ranks that they are given.

        A name that fits several captures is that of each, if they are of different runs.
        """
        made = list(claims)
        for name, rank in assigned.items():
            hits = [at for at, claim in enumerate(claims) if claim.is_named(name)]
            if not hits:
                if not self._finding.of_several:
                    raise _not_there(name, rank, claims, self._root.path)
                self._unassigned |= {name}
            for at in hits:
                made[at] = claims[at].assigned(rank)
            self._check_one_of_a_run(name, rank, [claims[at] for at in hits])
        return made

    def _check_one_of_a_run(self, name: str, rank: int, hits: Sequence[Claim]) -> None:
        for run in found_runs(hits) if len(hits) > 1 else ():
            if len(run.claims) > 1:
                own_names = {own.name for own in run.claims}
                is_enough = len(own_names) == len(run.claims) and name not in own_names
                names = ", ".join(own.name if is_enough else own.path for own in run.claims)
                raise UsageError(
                    f"--assign-rank {name}={rank} fits several captures of one run: {names}.",
                    do="Write one of these instead, for each that has no rank.",
                )

    def _check(self, found: Settled) -> None:
        """Raise what is wrong with the newest run, or tell it in some other way."""
        if self._finding.lists_all:
            self._unclear += [Unclear(path, said) for path, said in found.problems]
            return
        if found.error is None:
            return
        if not self._finding.keep_going or not found.ranks or not found.is_partial:
            raise found.error
        self._notes += [f"{path.name} is left out: {said}" for path, said in found.problems]


def _not_there(name: str, rank: int, claims: Sequence[Claim], path: Path) -> UsageError:
    known = sorted({claim.capture.directory.name for claim in claims})
    return UsageError(
        f"--assign-rank {name}={rank}: there is no such capture in {path}"
        f"{did_you_mean(name, known)}",
        do=f"Name one of {', '.join(known)}.",
    )


def _source(claim: Claim, rank: int) -> Source:
    own = source_of(claim.capture, claim.identity(rank), claim.clock, claim.several)
    return with_companions(own, claim.capture, claim.several)
