"""Proves that a limit keeps whole steps, and that the words and exit codes of it are true."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.overlap import expected_overlap
from tests.support.drawn_slices import DrawnSlice, drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import (
    Profile,
    ProfileShelf,
    change_events,
    without_markers,
)
from tests.support.run_command import Command, hardware_tasks, whole_overlap

pytestmark = pytest.mark.sweep

SUFFIXES = (".pftrace", ".pftrace.gz", ".json", ".json.gz")


def left_out_slices(picture: TraceProcessor) -> list[DrawnSlice]:
    return [one for one in drawn_slices(picture) if "not in this file" in one.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_limit_keeps_steps(command: Command, shelf: ProfileShelf, suffix: str) -> None:
    """Under any limit that works, whole steps of all ranks are kept, and all summaries."""
    long = shelf.get("torch-db", steps=6)
    arguments = (long.path, "--kind", "detail", "--fit", "steps", "-o", f"out{suffix}")
    whole = command.report(*arguments, "--limit", "0")["outputs"][0]["bytes"]
    tiny = command(*arguments, "--limit", "1B", "--force")
    assert tiny.code == 4
    match = re.search(r"smallest that works is (\d+) bytes", tiny.err)
    assert match is not None, tiny.err
    least = int(match[1])
    assert command(*arguments, "--limit", f"{least - 1}B", "--force").code == 4
    counts = []
    for limit in (least, whole * 7 // 10, whole * 17 // 20, whole - 1, whole):
        report = command.report(*arguments, "--limit", f"{limit}B")
        (output,) = report["outputs"]
        assert (command.directory / f"out{suffix}").stat().st_size == output["bytes"] <= limit
        kept = output["steps"]
        counts.append(len(kept))
        check_trimmed(command.loaded(f"out{suffix}"), report, long, kept, suffix)
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert 0 < counts[2] < 6
    assert counts[-2] < counts[-1] == 6
    assert command.files() == [f"out{suffix}"]


def check_trimmed(
    picture: TraceProcessor,
    report: dict[str, Any],
    profile: Profile,
    kept: Sequence[int],
    suffix: str,
) -> None:
    """The detail of exactly the kept steps is drawn, the summary of all, and a note per rank."""
    missing = left_out_slices(picture)
    every = len(profile.run.ranks[0].steps)
    assert (not missing) if len(kept) == every else len(missing) >= 2
    for rank in profile.run.ranks:
        assert whole_overlap(report, rank.rank) == expected_overlap(profile.run, rank.rank)
        steps = [step for step in rank.steps if step.id in kept]
        tasks = sum(len(one.tasks) for step in steps for one in step.iterations)
        if len(steps) == len(rank.steps):
            tasks += len(rank.switches)
        if suffix.startswith(".json"):
            continue
        of_rank = drawn_slices(picture, f"Rank {rank.rank}")
        rows = Counter(one.row[-1] for one in of_rank if "Step Trace" in one.row)
        assert rows["ProfilerStep"] == len(rank.steps)
        hardware = [one for one in of_rank if "Ascend Hardware" in one.row]
        assert len(hardware) == tasks
        overlap = Counter[str]()
        for one in of_rank:
            if "Overlap Analysis" in one.row:
                overlap[one.name] += one.duration_ns
        assert [overlap[name] for name in ("Computing", "Free")] == [
            whole_overlap(report, rank.rank)[field] for field in ("computing_ns", "free_ns")
        ]
        for note in missing:
            if f"Rank {rank.rank}" in note.row:
                assert not any(note.start_ns < one.start_ns < note.end_ns for one in hardware)


def test_words_of_the_limit(command: Command, shelf: ProfileShelf) -> None:
    """People are told which steps are in the file, what is not, and how to see it."""
    long = shelf.get("torch-db", steps=6)
    arguments = ("--kind", "detail", "--fit", "steps", "-o", "out.pftrace")
    size = command.report(long.path, *arguments)["outputs"][0]["bytes"]
    limited = (*arguments, "--limit", f"{size * 17 // 20}B", "--force")
    outcome = command(long.path, *limited)
    assert outcome.code == 0
    assert re.search(r"^Wrote out\.pftrace .* steps? [\d,-]+ of 6$", outcome.out, re.MULTILINE)
    assert re.search(r"^  [\d ]+ records left out: -v says more$", outcome.out, re.MULTILINE)
    told = command(long.path, *limited, "-v").out
    assert re.search(r"left out: steps [\d,-]+: [\d ]+ records", told)
    suggestion = command.report(long.path, *limited)["suggestion"]
    assert f"{suggestion}\n" in outcome.out
    words = shlex.split(suggestion)
    assert words[0] == "tlexport"
    (command.directory / "out.pftrace").unlink()
    assert command(*words[1:]).code == 0
    (name,) = command.files()
    assert len(drawn_slices(command.loaded(name), "Ascend Hardware")) > 0


def test_suggestion_works_for_assigned_ranks(
    command: Command, shelf: ProfileShelf, tmp_path: Path
) -> None:
    """The command that shows the rest carries what this profile cannot be read without."""
    anonymous = shelf.copy("torch-db", tmp_path / "a b", ranks=1, steps=6)
    capture = anonymous.captures[0]
    (capture / "profiler_info_0.json").unlink()
    database = next(capture.rglob("ascend_pytorch_profiler_0.db"))
    database.rename(database.with_name("ascend_pytorch_profiler_7.db"))
    assigned = ("--assign-rank", f"{capture.name}=3")
    arguments = (anonymous.path, *assigned, "--kind", "detail", "--fit", "steps")
    size = command.report(*arguments, "-o", "out.pftrace")["outputs"][0]["bytes"]
    report = command.report(*arguments, "-o", "out.pftrace", "--limit", f"{size * 17 // 20}B")
    again = command(*shlex.split(report["suggestion"])[1:])
    assert again.code == 0, again.err


def test_limit_without_steps(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """A profile without any step is cut at a moment that is the same for all ranks."""
    plain = without_markers(shelf, tmp_path / "run", ranks=2)
    arguments = (plain.path, "--kind", "detail", "--fit", "steps", "-o", "out.pftrace")
    report = command.report(*arguments)
    assert [row["steps"] for row in report["ranks"]] == [0, 0]
    limit = report["outputs"][0]["bytes"] * 2 // 3
    trimmed = command.report(*arguments, "--limit", f"{limit}B")
    assert trimmed["outputs"][0]["bytes"] <= limit
    picture = command.loaded("out.pftrace")
    missing = left_out_slices(picture)
    assert len(missing) == 2
    assert len({one.start_ns for one in missing}) == 1
    for rank in plain.run.ranks:
        assert whole_overlap(trimmed, rank.rank) == expected_overlap(plain.run, rank.rank)
        drawn = drawn_slices(picture, f"Rank {rank.rank}", "Ascend Hardware")
        assert 0 < len(drawn) < hardware_tasks(rank)
        assert all(one.start_ns <= missing[0].start_ns for one in drawn)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_fit_error(command: Command, profile: Profile, suffix: str) -> None:
    """--fit error writes the whole selection or nothing, with exit 4 and both sizes."""
    arguments = (profile.path, "--kind", "detail", "--fit", "error", "-o", f"out{suffix}")
    size = command.report(*arguments)["outputs"][0]["bytes"]
    assert command(*arguments, "--limit", f"{size}B", "--force").code == 0
    (command.directory / f"out{suffix}").unlink()
    outcome = command(*arguments, "--limit", f"{size - 1}B")
    assert (outcome.code, outcome.out) == (4, "")
    assert "limit" in outcome.err
    assert f"{size / 1024:.1f} KB" in outcome.err
    assert command.files() == []


def test_strict(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """--strict allows no loss: exit 4, and no file, where detail would be left out."""
    long = shelf.get("torch-db", steps=6)
    arguments = (long.path, "--kind", "detail", "--fit", "steps", "--strict", "-o", "out.pftrace")
    report = command.report(*arguments)
    repeated = [row for row in report["omitted"] if not row["loss"]]
    assert repeated, "parents of FFTS+ tasks only repeat their sub-tasks and are no loss"
    (command.directory / "out.pftrace").unlink()
    limit = f"{report['outputs'][0]['bytes'] * 7 // 10}B"
    outcome = command(*arguments, "--limit", limit)
    assert (outcome.code, outcome.out) == (4, "")
    assert "--strict" in outcome.err
    assert command.files() == []


def test_strict_about_broken_records(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """A record without a valid time is left out, counted, and a loss under --strict."""
    broken = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    trace = next(broken.path.rglob("trace_view.json"))
    change_events(
        trace,
        lambda event: event | {"dur": -5} if event["name"] == "MEMCPY_ASYNC" else event,
    )
    report = command.report(broken.path, "--kind", "detail", "-o", "out.pftrace")
    (loss,) = [row for row in report["omitted"] if row["loss"]]
    copies = [
        task
        for rank in broken.run.ranks
        for one in rank.iterations
        for task in one.tasks
        if task.kind == "MEMCPY_ASYNC"
    ]
    assert loss["rows"] == len(copies)
    assert "device tasks" in loss["reason"]
    outcome = command(broken.path, "--kind", "detail", "--strict", "-o", "strict.pftrace")
    assert outcome.code == 4
    assert command.files() == ["out.pftrace"]
