"""Proves that an export replaces only its own files, and keeps whole steps within a limit."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.overlap import expected_overlap
from tests.support.drawn_slices import DrawnSlice, drawn_slices
from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import ROOT
from tests.support.profile_shelf import (
    Copier,
    Profile,
    ProfileShelf,
    change_events,
    tree_state,
    without_markers,
)
from tests.support.run_command import Command, hardware_tasks, whole_overlap
from timeline.encoders.drafts import Draft, write_draft

pytestmark = pytest.mark.sweep

SUFFIXES = (".pftrace", ".pftrace.gz", ".json", ".json.gz")


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ((), "timeline-PROFILE-summary-r0-1.pftrace"),
        (("--ranks", "1"), "timeline-PROFILE-summary-r1.pftrace"),
        (("--kind", "detail", "--ranks", "0,1"), "timeline-PROFILE-detail-r0-1.pftrace"),
        (
            ("--kind", "detail", "--graphs", "3", "--steps", "2-3"),
            "timeline-PROFILE-detail-r0-1-g3-s2-3.pftrace",
        ),
    ],
)
def test_default_name(
    command: Command, profile: Profile, options: Sequence[str], name: str
) -> None:
    """Without -o the file lies in the current directory, named after what is in it."""
    name = name.replace("PROFILE", profile.path.name)
    outcome = command(profile.path, *options)
    assert outcome.code == 0
    assert command.files() == [name]
    assert f"Wrote {name}  " in outcome.out
    assert "https://ui.perfetto.dev" in outcome.out
    command.loaded(name)


def test_default_name_of_scattered_ranks(command: Command, shelf: ProfileShelf) -> None:
    """Ranks that do not follow each other are listed in the name."""
    five = shelf.get("torch-db", ranks=5, steps=1)
    assert command(five.path, "--ranks", "0,2-4").code == 0
    assert command.files() == [f"timeline-{five.path.name}-summary-r0,2-4.pftrace"]


@pytest.mark.parametrize("inside", [False, True])
def test_a_timeline_is_printed(profile: Profile, tmp_path: Path, inside: bool) -> None:
    """`-o -` gives the bytes that a file would have, all words on stderr, and leaves no file."""
    words = ["compare", profile.path, "--steps", "1:2"] if inside else [profile.path]

    def run(output: str, *more: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "timeline", *words, "-o", output, *more],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
            capture_output=True,
        )

    piped, written = run("-"), run("same.pftrace")
    assert (piped.returncode, written.returncode) == (0, 0)
    assert piped.stdout == (tmp_path / "same.pftrace").read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["same.pftrace"]
    said = written.stderr + written.stdout.replace(b"Wrote same.pftrace", b"Wrote standard output")
    assert piped.stderr == said[: said.index(b"Open: ")]
    assert run("-", "-q").stderr == b""


@pytest.mark.parametrize(
    "more",
    ["--json", "--csv -", "--open", "--offline", "--fit split", "--verdict", "--report p.html"],
)
def test_a_timeline_is_printed_alone(command: Command, profile: Profile, more: str) -> None:
    """What else needs standard output, a file, or several files, is refused before any work."""
    outcome = command(profile.path, "-o", "-", *more.split())
    assert (outcome.code, outcome.out) == (2, "")
    assert "exclude each other" in outcome.err
    assert command.files() == []


def test_existing_file_is_kept(command: Command, profile: Profile) -> None:
    """A file that exists stays as it is until --force is given; then it is replaced."""
    target = command.directory / "mine.pftrace"
    target.write_bytes(b"precious")
    outcome = command(profile.path, "-o", "mine.pftrace")
    assert (outcome.code, outcome.out) == (1, "")
    assert "mine.pftrace exists" in outcome.err
    assert "--force" in outcome.err
    assert target.read_bytes() == b"precious"
    assert command(profile.path, "-o", "mine.pftrace", "--force").code == 0
    assert len(drawn_slices(command.loaded("mine.pftrace"))) > 0
    assert command.files() == ["mine.pftrace"]


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("run 7/epoch:2", "epoch-2"),
        ("-v", "v"),
        ("训练", "profile"),
        ("host_" + "1" * 60, "host_" + "1" * 35),
    ],
)
def test_default_name_of_any_directory(
    command: Command, shelf: ProfileShelf, tmp_path: Path, directory: str, name: str
) -> None:
    """It is one word for every shell and file system, at most 40 characters of the profile's."""
    there = shelf.copy("torch-db", tmp_path / "somewhere" / directory)
    assert command(there.path).code == 0
    assert command.files() == [f"timeline-{name}-summary-r0-1.pftrace"]


def test_the_same_question_twice(command: Command, profile: Profile) -> None:
    """An earlier answer under the default name is replaced, which is said."""
    name = f"timeline-{profile.path.name}-summary-r0-1.pftrace"
    assert command.report(profile.path)["outputs"][0]["replaced"] is False
    before = (command.directory / name).read_bytes()
    outcome = command(profile.path, "--args", "none")
    assert outcome.code == 0
    assert f"Wrote {name} (replaced)  " in outcome.out
    assert (command.directory / name).read_bytes() != before
    assert command.report(profile.path)["outputs"][0]["replaced"] is True
    assert command.files() == [name]


def test_the_same_comparison_twice(command: Command, profile: Profile) -> None:
    """Likewise."""
    name = f"compare-{profile.path.name}-{profile.path.name}-summary.pftrace"
    for said in ("", " (replaced)"):
        outcome = command("compare", profile.path, profile.path)
        assert f"Wrote {name}{said}  " in outcome.out
    assert command.files() == [name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_an_earlier_answer_gives_way(command: Command, profile: Profile, suffix: str) -> None:
    """A file of somebody else, a link or a directory under the default name stays as it is."""
    name = f"timeline-{profile.path.name}-summary-r0-1.pftrace"
    ours = command.directory / f"ours{suffix}"
    assert command(profile.path, "-o", ours.name).code == 0
    target = command.directory / name
    whole = ours.read_bytes()
    appended = [b"my notes\n", b"\nnotes", *([whole] if suffix == ".pftrace" else [])]
    for foreign in (b"precious", b"", whole[:40], *(whole + notes for notes in appended)):
        target.write_bytes(foreign)
        outcome = command(profile.path)
        assert (outcome.code, outcome.out) == (1, "")
        assert f"{name} exists" in outcome.err
        assert target.read_bytes() == foreign
    target.unlink()
    target.symlink_to(ours.name)
    assert command(profile.path).code == 1
    assert target.is_symlink()
    target.unlink()
    target.mkdir()
    assert command(profile.path).code == 1
    assert command(profile.path, "--force").code == 1
    assert target.is_dir()


def test_parts_of_an_earlier_answer_give_way(command: Command, shelf: ProfileShelf) -> None:
    """Fewer parts leave none of more behind; parts of others stay."""
    long = shelf.get("torch-db", steps=6)
    asked = (long.path, "--kind", "detail", "--fit", "split")
    whole = command.report(*asked, "--limit", "0")["outputs"][0]
    (command.directory / whole["path"]).unlink()

    def parts(share: float) -> list[str]:
        report = command.report(*asked, "--limit", f"{int(whole['bytes'] * share)}B")
        return [output["path"] for output in report["outputs"]]

    many = parts(0.3)
    foreign = command.directory / many[-1].replace("part", "part9", 1)
    foreign.write_bytes(b"precious")
    few = parts(0.6)
    assert len(few) < len(many)
    assert command.files() == sorted([*few, foreign.name])
    assert parts(0.6) == few
    assert foreign.read_bytes() == b"precious"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindspore-2.1", "kineto"])
def test_an_answer_is_no_part_of_the_profile(
    command: Command, copied: Copier, layout: str, suffix: str
) -> None:
    """A file of ours that lies in the profile's directory changes nothing, and is replaced."""
    profile = copied(layout)
    first = command.report(profile.path, "-o", "first.pftrace")
    capture = profile.captures[0]
    for place in {profile.path, capture if capture.is_dir() else capture.parent}:
        answer = place / f"timeline-run-summary-r0-1{suffix}"
        assert command(profile.path, "-o", answer).code == 0
        assert command(profile.path, "-o", answer, "--force").code == 0
    again = command.report(profile.path, "-o", "again.pftrace")
    assert again["ranks"] == first["ranks"]
    assert again["warnings"] == first["warnings"]


def test_same_input_same_bytes(command: Command, profile: Profile) -> None:
    """Exporting twice gives the same bytes, packed or not."""
    for suffix in SUFFIXES:
        for name in ("a", "b"):
            command.report(profile.path, "--kind", "detail", "-o", f"{name}{suffix}")
        files = [(command.directory / f"{name}{suffix}").read_bytes() for name in ("a", "b")]
        assert files[0] == files[1]


@pytest.mark.parametrize("name", ["out.txt", "out", "out.gz", "out.pftrace.zip", "out.JSON.bz2"])
def test_unknown_suffix(command: Command, profile: Profile, name: str) -> None:
    """A suffix that names no format is an error that lists those that do."""
    outcome = command(profile.path, "-o", name)
    assert outcome.code == 2
    assert all(suffix in outcome.err for suffix in SUFFIXES)
    assert command.files() == []


def test_output_that_cannot_be(command: Command, profile: Profile) -> None:
    """A directory as output, or one that is not there, is an error before anything is read."""
    (command.directory / "taken.pftrace").mkdir()
    for name in ("taken.pftrace", "absent/out.pftrace"):
        outcome = command(profile.path, "-o", name, "--force")
        assert outcome.code == 1
        assert name.partition("/")[0] in outcome.err
    assert command.files() == ["taken.pftrace"]


def test_input_cannot_be_the_output(command: Command, copied: Copier) -> None:
    """Not even --force replaces a file of the profile: inputs are never changed."""
    text = copied("torch-text", ranks=1)
    trace = text.captures[0] / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    unread = trace.with_name("step_trace_time.csv")
    unread.write_text("the vendor's")
    before = tree_state(text.path)
    for arguments in (
        ("-o", trace),
        ("--csv", unread),
        ("--csv", trace.parent / "." / unread.name),
    ):
        outcome = command(text.path, *arguments, "--force")
        assert outcome.code == 1
        assert "is part of the profile" in outcome.err
    assert tree_state(text.path) == before


def test_an_earlier_answer_in_a_capture_gives_way(command: Command, copied: Copier) -> None:
    """Whoever works in the directory of a capture can ask twice."""
    capture = copied("torch-text", ranks=1).captures[0]
    for _ in range(2):
        assert command(capture, "-o", capture / "out.pftrace", "--force").code == 0


@pytest.mark.skipif(os.name != "posix", reason="has pipes and devices with names")
@pytest.mark.parametrize("option", ["-o", "--csv"])
@pytest.mark.parametrize("kind", ["pipe", "link", "link to nothing", "device"])
def test_only_files_are_replaced(
    command: Command, profile: Profile, option: str, kind: str
) -> None:
    """No pipe, no device, no link and nothing that one points to, not even with --force."""
    target, other = command.directory / "out.pftrace", command.directory / "other"
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "device":
        if os.geteuid():
            pytest.skip("root alone makes devices")
        os.mknod(target, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    else:
        target.symlink_to(other)
        if kind == "link":
            other.write_text("theirs")
    before = os.lstat(target)
    outcome = command(profile.path, option, target, "--force")
    assert outcome.code == 1
    assert "symbolic link to" in outcome.err or "pipe or device" in outcome.err
    after = os.lstat(target)
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert [path.read_text() for path in (other,) if path.exists()] == ["theirs"] * (kind == "link")
    assert set(command.files()) <= {target.name, other.name}


WRITE_DRAFT = "timeline.fitting.writer.write_draft"


def failing_after(drafts: int, error: type[BaseException]) -> Callable[..., Draft]:
    """`write_draft` that meets an error in the middle of draft number `drafts`, from 1."""
    numbers = itertools.count(1)

    def torn(pieces: Iterable[bytes]) -> Iterator[bytes]:
        yield from itertools.islice(pieces, 1)
        raise error("in the middle of a file")

    def write(pieces: Iterable[bytes], *rest: Any, **named: Any) -> Draft:
        return write_draft(torn(pieces) if next(numbers) == drafts else pieces, *rest, **named)

    return write


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, KeyboardInterrupt, OSError])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_nothing_left_when_encoding_fails(
    command: Command,
    profile: Profile,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    error: type[BaseException],
) -> None:
    """Whatever ends the encoding, neither the file nor a temporary one is there afterwards."""
    monkeypatch.setattr(WRITE_DRAFT, failing_after(1, error))
    expect_failure(command, error, profile.path, "--kind", "detail", "-o", f"out{suffix}")
    assert command.files() == []


def expect_failure(command: Command, error: type[BaseException], *arguments: str | Path) -> None:
    """Run the command into an error: known ones are told, others are bugs and stay visible."""
    if error is KeyboardInterrupt:
        assert command(*arguments).code == 130
    elif error in (OSError, MemoryError):
        outcome = command(*arguments)
        assert outcome.code == 1
        told = "cannot be written" if error is OSError else "not enough memory"
        assert told in outcome.err
    else:
        with pytest.raises(error, match="in the middle of a file"):
            command(*arguments)


# -- limits ----------------------------------------------------------------------------------------


def left_out_slices(picture: TraceProcessor) -> list[DrawnSlice]:
    return [one for one in drawn_slices(picture) if "not in this file" in one.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_limit_keeps_steps(command: Command, shelf: ProfileShelf, suffix: str) -> None:
    """Under any limit that works, whole steps of all ranks are kept, and all summaries."""
    long = shelf.get("torch-db", steps=6)
    arguments = (long.path, "--kind", "detail", "--fit", "steps", "-o", f"out{suffix}")
    whole = command.report(*arguments, "--limit", "0")["outputs"][0]["bytes"]
    tiny = command(*arguments, "--limit", "1B", "--force")
    least = int(re.findall(r"smallest that works is (\d+) bytes", tiny.err)[0])
    counts = []
    for limit in (least, whole * 7 // 10, whole * 17 // 20, whole - 1, whole):
        report = command.report(*arguments, "--limit", f"{limit}B")
        (output,) = report["outputs"]
        assert (command.directory / f"out{suffix}").stat().st_size == output["bytes"] <= limit
        counts.append(len(output["steps"]))
        left_out = left_out_slices(command.loaded(f"out{suffix}"))
        assert (len(left_out) >= 2) if counts[-1] < 6 else not left_out
        for rank in (0, 1):
            assert whole_overlap(report, rank) == expected_overlap(long.run, rank)
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert 0 < counts[2] < 6
    assert counts[-2] < counts[-1] == 6
    assert command.files() == [f"out{suffix}"]


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


def test_suggestion_works_for_assigned_ranks(command: Command, copied: Copier) -> None:
    """The command that shows the rest carries what this profile cannot be read without."""
    anonymous = copied("torch-db", ranks=1, steps=6)
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


def test_strict_about_broken_records(command: Command, copied: Copier) -> None:
    """A record without a valid time is left out, counted, and a loss under --strict."""
    broken = copied("torch-text", ranks=1)
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
