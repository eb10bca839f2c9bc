"""Turns command lines into files, words and exit codes, and checks all three."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from drawn_slices import DrawnSlice, drawn_rows, drawn_slices
from make_profile import Iteration, RankRun, expected_overlap
from perfetto_sql import TraceProcessor
from profile_overlap import sweep, totals
from profile_shelf import Event, Profile, ProfileShelf, change_events, tree_state

from timeline import __version__
from timeline.cli.main import main
from timeline.encoders.drafts import Draft, write_draft

SUFFIXES = (".pftrace", ".pftrace.gz", ".json", ".json.gz")
OPERATOR_VARIABLES = ("PROFILING_FP_START", "FP_POINT", "PROFILING_BP_END", "BP_POINT")
OVERLAP_FIELDS = ("computing_ns", "communication_ns", "not_overlapped_ns", "free_ns")


@dataclass(frozen=True)
class Outcome:
    """What one run of the command returned and said."""

    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """Its stdout as JSON."""
        parsed: dict[str, Any] = json.loads(self.out)
        return parsed


@dataclass(frozen=True)
class Command:
    """Runs the command in a directory of its own."""

    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str | Path) -> Outcome:
        """Run the command with these arguments, whatever comes of it."""
        code = main([str(argument) for argument in arguments])
        said = self.capsys.readouterr()
        return Outcome(code, said.out, said.err)

    def report(self, *arguments: str | Path) -> dict[str, Any]:
        """The report of a run that has to succeed; an existing file is replaced."""
        outcome = self(*arguments, "--json", "--force")
        assert outcome.code == 0, outcome.err
        return outcome.report

    def picture(self, *arguments: str | Path) -> TraceProcessor:
        """The Perfetto file of a run that has to succeed."""
        self.report(*arguments, "-o", "picture.pftrace")
        return self.loaded("picture.pftrace")

    def loaded(self, name: str) -> TraceProcessor:
        """A file that was written, loaded without import errors."""
        processor = TraceProcessor.load((self.directory / name).read_bytes())
        assert processor.import_errors() == []
        return processor

    def files(self) -> list[str]:
        """The names of all files in the directory, hidden ones too."""
        return sorted(path.name for path in self.directory.iterdir())


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Command:
    directory = tmp_path / "here"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for variable in OPERATOR_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    return Command(directory, capsys)


@pytest.fixture
def profile(shelf: ProfileShelf) -> Profile:
    """Two ranks, three steps of two graphs, with markers, counters, host calls and arrows."""
    return shelf.get("mindstudio", graphs=(1, 3))


def hardware_tasks(rank: RankRun) -> int:
    return len(rank.switches) + sum(len(one.tasks) for one in rank.iterations)


def overlap_of(iterations: Iterable[Iteration]) -> dict[str, int]:
    """The overlap of the records of some iterations taken together."""
    return dict(zip(OVERLAP_FIELDS, totals(sweep(iterations)).values(), strict=True))


def whole_overlap(report: dict[str, Any], rank: int) -> dict[str, int]:
    """The reported overlap of all that was selected of a rank."""
    (row,) = [row for row in report["overlap"] if row["rank"] == rank and row["step"] is None]
    return {field: row[field] for field in OVERLAP_FIELDS}


# -- the output ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ((), "timeline-summary-r0-1.pftrace"),
        (("--ranks", "1"), "timeline-summary-r1.pftrace"),
        (("--kind", "detail", "--ranks", "0,1"), "timeline-detail-r0-1.pftrace"),
        (
            ("--kind", "detail", "--graphs", "3", "--steps", "2-3"),
            "timeline-detail-r0-1-g3-s2-3.pftrace",
        ),
    ],
)
def test_default_name(
    command: Command, profile: Profile, options: Sequence[str], name: str
) -> None:
    """Without -o the file lies in the current directory, named after what is in it."""
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
    assert command.files() == ["timeline-summary-r0,2-4.pftrace"]


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


@pytest.mark.parametrize("kind", ["summary", "detail"])
def test_suffix_decides_the_format(command: Command, profile: Profile, kind: str) -> None:
    """.pftrace, .json and both with .gz hold the same slices; .gz is the file itself, packed."""
    contents = {}
    for suffix in SUFFIXES:
        report = command.report(profile.path, "--kind", kind, "-o", f"out{suffix}")
        (output,) = report["outputs"]
        data = (command.directory / f"out{suffix}").read_bytes()
        assert output["bytes"] == len(data)
        assert output["format"] == suffix.split(".")[1]
        contents[suffix] = gzip.decompress(data) if suffix.endswith(".gz") else data
        slices = drawn_slices(command.loaded(f"out{suffix}"))
        assert output["slices"] == len(slices)
        assert Counter(one.name for one in slices) == Counter(
            one.name for one in drawn_slices(command.loaded("out.pftrace"))
        )
    assert contents[".json"] == contents[".json.gz"]
    assert json.loads(contents[".json"])["traceEvents"]
    loaded = [TraceProcessor.load(contents[suffix]) for suffix in (".pftrace", ".pftrace.gz")]
    assert drawn_slices(loaded[0]) == drawn_slices(loaded[1])


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


def test_input_cannot_be_the_output(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """Not even --force replaces a file of the profile: inputs are never changed."""
    text = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    trace = text.captures[0] / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    before = tree_state(text.path)
    assert command(text.path, "-o", trace, "--force").code == 1
    assert tree_state(text.path) == before


# -- exit codes and messages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        ("--rank", "0"),
        ("--kind", "both"),
        ("--ranks", ""),
        ("--ranks", "first"),
        ("--ranks", "3-1"),
        ("--steps", "1,,2"),
        ("--graphs", "-1"),
        ("--window", "5"),
        ("--window", "1 minute:"),
        ("--window", "30%:120%"),
        ("--limit", "plenty"),
        ("--limit", "-5"),
        ("--layers", "hardware,hccl"),
        ("--fit", "luck"),
        ("--assign-rank", "PROF_1"),
        ("--assign-rank", "PROF_1=first"),
        ("--assign-rank", "PROF_absent=1"),
        ("one", "two"),
    ],
    ids=" ".join,
)
def test_wrong_usage(command: Command, profile: Profile, options: Sequence[str]) -> None:
    """An option or value without a meaning is exit 2, told on stderr, and nothing is written."""
    outcome = command(profile.path, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("tlexport: ")
    assert "Traceback" not in outcome.err
    assert command.files() == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--ranks", "9"), ("rank 9 is not in", "found ranks 0,1", "--list")),
        (("--ranks", "0,7-9"), ("ranks 7-9 are not in", "found ranks 0,1")),
        (("--graphs", "2"), ("graph 2 is not in", "found graphs 1,3", "--list")),
        (("--steps", "3-5"), ("steps 4,5 are not in", "found steps 1-3", "--list")),
        (("--window", "5s:6s"), ("outside", "5.000 s", "6.000 s")),
        (("--window", "2ms:1ms"), ("2.000 ms", "1.000 ms")),
    ],
)
def test_selection_that_is_not_there(
    command: Command, profile: Profile, options: Sequence[str], said: Sequence[str]
) -> None:
    """Asking for what is not there is exit 3, and the message lists what is."""
    outcome = command(profile.path, *options)
    assert (outcome.code, outcome.out) == (3, "")
    for part in said:
        assert part in outcome.err
    assert command.files() == []


def test_list_of_a_rank_that_is_not_there(command: Command, profile: Profile) -> None:
    """--list refuses an unknown rank as an export does."""
    outcome = command(profile.path, "--list", "--ranks", "9")
    assert (outcome.code, outcome.out) == (3, "")
    assert "found ranks 0,1" in outcome.err


def test_missing_profile(command: Command) -> None:
    """A path without a profile is exit 1, and the message says what was looked for."""
    outcome = command(command.directory)
    assert outcome.code == 1
    assert "holds no Ascend profile" in outcome.err
    assert "msprof --export=on" in outcome.err
    assert command("absent").code == 1


def test_quiet(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """-q says nothing on success, warnings included, and still tells errors."""
    broken = shelf.copy("torch-text", tmp_path / "run", ranks=1)
    trace = next(broken.path.rglob("trace_view.json"))
    change_events(trace, lambda event: event if event["ph"] == "M" else None)
    loud = command(broken.path, "-o", "loud.pftrace")
    assert loud.code == 0
    assert "holds nothing" in loud.err
    quiet = command(broken.path, "-q", "-o", "quiet.pftrace")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert command.files() == ["loud.pftrace", "quiet.pftrace"]
    assert "exists" in command(broken.path, "-q", "-o", "quiet.pftrace").err


def test_words_of_success(command: Command, profile: Profile) -> None:
    """The result is on stdout: what is slow, then what was written, its size and steps."""
    outcome = command(profile.path, "--kind", "detail", "-o", "out.pftrace")
    assert outcome.err == ""
    lines = outcome.out.splitlines()
    assert lines[0].startswith("Device time of rank ")
    table = lines.index("") + 1
    assert lines[table + 1].split()[:2] == ["rank", "step"]
    assert [line.split()[0] for line in lines[table + 2 : table + 4]] == ["0", "1"]
    (written,) = [line for line in lines if line.startswith("Wrote ")]
    size = (command.directory / "out.pftrace").stat().st_size
    assert f"{size / 1024:.1f} KB, 2 ranks, " in written
    assert written.endswith(", steps 1-3")


def interrupt(*_: object, **_more: object) -> None:
    raise KeyboardInterrupt


def test_interrupt_while_reading(
    command: Command, profile: Profile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt is exit 130 and leaves nothing."""
    monkeypatch.setattr("timeline.sources.trace_json.source.MindStudioSource.read", interrupt)
    outcome = command(profile.path)
    assert outcome.code == 130
    assert outcome.out == ""
    assert "interrupted" in outcome.err
    assert command.files() == []


@pytest.mark.parametrize("arguments", [(), ("--quiet", "--open")], ids=["told", "shown"])
def test_interrupt_behind_the_writing(
    command: Command, profile: Profile, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """What is written stays, and the message does not deny it."""
    monkeypatch.setattr("timeline.reports.terminal.verdict_text", interrupt)
    monkeypatch.setattr("timeline.viewer.show", interrupt)
    outcome = command(profile.path, *arguments)
    assert outcome.code == 130
    assert outcome.err == "tlexport: interrupted; the timeline was written before.\n"
    assert command.files() == ["timeline-summary-r0-1.pftrace"]


# -- nothing is left behind ------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("fit", "share"),
    [("coarsen", 0.35), ("coarsen", 0.55), ("steps", 0.5), ("split", 0.6)],
)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_left_when_a_later_draft_fails(
    command: Command,
    shelf: ProfileShelf,
    monkeypatch: pytest.MonkeyPatch,
    fit: str,
    share: float,
    error: type[BaseException],
) -> None:
    """Whichever draft of a search fails, the others go as well; an old file keeps its bytes."""
    long = shelf.get("torch-db", steps=6)
    size = command.report(long.path, "--kind", "detail", "-o", "out.pftrace")["outputs"][0]["bytes"]
    before = (command.directory / "out.pftrace").read_bytes()
    arguments = ("--kind", "detail", "--fit", fit, "--force", "--limit", f"{int(size * share)}B")
    written = itertools.count()

    def counting(*pieces: Any, **named: Any) -> Draft:
        next(written)
        return write_draft(*pieces, **named)

    monkeypatch.setattr(WRITE_DRAFT, counting)
    assert command(long.path, *arguments, "-o", "other.pftrace").code == 0
    for path in command.directory.glob("other*"):
        path.unlink()
    drafts = next(written)
    assert drafts > 0
    for number in range(1, drafts + 1):
        monkeypatch.setattr(WRITE_DRAFT, failing_after(number, error))
        expect_failure(command, error, long.path, *arguments, "-o", "out.pftrace")
        assert command.files() == ["out.pftrace"]
        assert (command.directory / "out.pftrace").read_bytes() == before


def expect_failure(command: Command, error: type[BaseException], *arguments: str | Path) -> None:
    """Run the command into an error: known ones are told, others are bugs and stay visible."""
    if error is KeyboardInterrupt:
        assert command(*arguments).code == 130
    elif error is OSError:
        outcome = command(*arguments)
        assert outcome.code == 1
        assert "cannot be written" in outcome.err
    else:
        with pytest.raises(error, match="in the middle of a file"):
            command(*arguments)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit on file sizes")
def test_full_disk(command: Command, profile: Profile) -> None:
    """When the system refuses to write on, the error says so and no file is left."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000));"
        "from timeline.cli.main import main; sys.exit(main())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(profile.path), "-o", "out.pftrace"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "out.pftrace: cannot be written" in ran.stderr
    assert command.files() == []


# -- --list and --json -----------------------------------------------------------------------------


def test_list(command: Command, profile: Profile) -> None:
    """--list shows a line per rank and graph, and writes nothing."""
    outcome = command(profile.path, "--list")
    assert (outcome.code, outcome.err) == (0, "")
    head, *lines = outcome.out.splitlines()
    assert head.split()[:3] == ["rank", "graph", "steps"]
    assert lines[0].split()[:3] == ["0", "1", "1-3"]
    assert lines[1].split()[:2] == ["3", "1-3"]
    assert lines[2].split()[:3] == ["1", "1", "1-3"]
    for capture in profile.captures:
        assert capture.name in outcome.out
    assert command.files() == []


def test_list_as_json(command: Command, profile: Profile) -> None:
    """--list --json holds the same facts as integers and lists."""
    outcome = command(profile.path, "--list", "--json", "--ranks", "1")
    assert outcome.code == 0
    (found,) = outcome.report["ranks"]
    rank = profile.run.rank(1)
    assert outcome.report["schema"] == 1
    assert found["rank"] == 1
    assert found["graphs"] == [{"graph": graph, "steps": [1, 2, 3]} for graph in (1, 3)]
    assert found["tasks"] == hardware_tasks(rank)
    assert found["comm_ops"] == sum(len(one.collectives) for one in rank.iterations)
    assert found["span_ns"] == rank.switches[1].end_ns - rank.switches[0].start_ns
    assert found["bytes"] > 10_000
    assert found["clock"] == "wall"
    assert "info.json" in found["evidence"]
    assert Path(found["source"]).name == profile.captures[1].name


@pytest.mark.parametrize("quiet", [(), ("-q",)], ids=["", "-q"])
def test_json_report(command: Command, profile: Profile, quiet: Sequence[str]) -> None:
    """--json prints one object: what was written, per rank, and overlap in integer ns."""
    outcome = command(profile.path, "--kind", "detail", "--json", *quiet, "-o", "out.json.gz")
    assert (outcome.code, outcome.err) == (0, "")
    report = outcome.report
    assert (report["schema"], report["status"], report["kind"]) == (1, "ok", "detail")
    (output,) = report["outputs"]
    assert {key: output[key] for key in ("path", "format", "steps")} == {
        "path": "out.json.gz",
        "format": "json",
        "steps": [1, 2, 3],
    }
    assert output["bytes"] == (command.directory / "out.json.gz").stat().st_size
    for rank, row in zip(profile.run.ranks, report["ranks"], strict=True):
        reduces = [reduce for one in rank.iterations for reduce in one.collectives]
        assert row["rank"] == rank.rank
        assert row["graphs"] == [1, 3]
        assert row["tasks"] == hardware_tasks(rank)
        assert row["comm_ops"] == len(reduces)
        assert row["comm"] == sum(len(reduce.tasks) for reduce in reduces)
        assert (row["offset_ns"], row["align"]) == (0, "recorded")
    assert report["omitted"] == []
    assert report["warnings"] == []
    assert report["suggestion"] == ""


@pytest.mark.parametrize("layout", ["torch-text", "torch-db", "mindstudio", "mindspore-2.1"])
def test_json_overlap(command: Command, shelf: ProfileShelf, layout: str) -> None:
    """One object per rank for the whole, one per rank, graph and step, equal to the run's own."""
    graphs = (1, 3) if layout.startswith("mind") else (1,)
    found = shelf.get(layout, graphs=graphs)
    rows = command.report(found.path)["overlap"]
    expected: list[tuple[int, int | None, int | None, dict[str, int]]] = []
    for rank in (0, 1):
        expected.append((rank, None, None, expected_overlap(found.run, rank)))
        for step in (1, 2, 3):
            for graph in graphs:
                shown = graph if layout.startswith("mind") else None
                own = expected_overlap(found.run, rank, step, graph)
                expected.append((rank, shown, step, own))
    assert [
        (row["rank"], row["graph"], row["step"], {field: row[field] for field in OVERLAP_FIELDS})
        for row in rows
    ] == expected
    for row in rows:
        parts = {"copies_ns", "outside_ns", "idle_ns"}
        assert set(row) == {"rank", "graph", "step", *OVERLAP_FIELDS, *parts}
        assert row["free_ns"] == sum(row[part] or 0 for part in parts)
        assert {type(row[field]) for field in OVERLAP_FIELDS} == {int}


# -- the size limit --------------------------------------------------------------------------------


def left_out_slices(picture: TraceProcessor) -> list[DrawnSlice]:
    return [one for one in drawn_slices(picture) if "not in this file" in one.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_limit_keeps_leading_steps(command: Command, shelf: ProfileShelf, suffix: str) -> None:
    """Under any limit that works, whole leading steps of all ranks are kept, and all summaries."""
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
    for limit in (least, whole // 2, whole * 3 // 4, whole - 1, whole):
        report = command.report(*arguments, "--limit", f"{limit}B")
        (output,) = report["outputs"]
        assert (command.directory / f"out{suffix}").stat().st_size == output["bytes"] <= limit
        kept = output["steps"]
        counts.append(len(kept))
        assert kept == list(range(1, len(kept) + 1))
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
    assert len(missing) == (0 if len(kept) == len(profile.run.ranks[0].steps) else 2)
    for rank in profile.run.ranks:
        assert whole_overlap(report, rank.rank) == expected_overlap(profile.run, rank.rank)
        steps = [step for step in rank.steps if step.id in kept]
        tasks = sum(len(one.tasks) for step in steps for one in step.iterations)
        if len(steps) == len(rank.steps):
            tasks += len(rank.switches)
        if suffix.startswith(".json"):
            continue
        own = drawn_slices(picture, f"Rank {rank.rank}")
        rows = Counter(one.row[-1] for one in own if "Step Trace" in one.row)
        assert rows["ProfilerStep"] == len(rank.steps)
        hardware = [one for one in own if "Ascend Hardware" in one.row]
        assert len(hardware) == tasks
        overlap = Counter[str]()
        for one in own:
            if "Overlap Analysis" in one.row:
                overlap[one.name] += one.duration_ns
        assert [overlap[name] for name in ("Computing", "Free")] == [
            whole_overlap(report, rank.rank)[field] for field in ("computing_ns", "free_ns")
        ]
        for note in missing:
            if f"Rank {rank.rank}" in note.row and hardware:
                assert note.start_ns >= max(one.end_ns for one in hardware)


def test_words_of_the_limit(command: Command, shelf: ProfileShelf) -> None:
    """People are told which steps are in the file, what is not, and how to see it."""
    long = shelf.get("torch-db", steps=6)
    arguments = ("--kind", "detail", "--fit", "steps", "-o", "out.pftrace")
    size = command.report(long.path, *arguments)["outputs"][0]["bytes"]
    limited = (*arguments, "--limit", f"{size * 2 // 3}B", "--force")
    outcome = command(long.path, *limited)
    assert outcome.code == 0
    assert re.search(r"^Wrote out\.pftrace .* steps 1(-\d|,2)? of 6$", outcome.out, re.MULTILINE)
    assert re.search(r"left out: steps \d-6: [\d ]+ records", outcome.out)
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
    report = command.report(*arguments, "-o", "out.pftrace", "--limit", f"{size * 2 // 3}B")
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
    limit = f"{report['outputs'][0]['bytes'] // 2}B"
    outcome = command(*arguments, "--limit", limit)
    assert (outcome.code, outcome.out) == (4, "")
    assert "--strict" in outcome.err
    assert command.files() == []


@pytest.mark.parametrize("fit", ["coarsen", "steps"])
def test_strict_whatever_the_fit(command: Command, shelf: ProfileShelf, fit: str) -> None:
    """Detail that is gathered is lost as much as detail that is left out."""
    long = shelf.get("torch-text", steps=6)
    arguments = (long.path, "--kind", "detail", "-o", "out.pftrace")
    size = command.report(*arguments, "--limit", "0")["outputs"][0]["bytes"]
    (command.directory / "out.pftrace").unlink()
    limited = (*arguments, "--fit", fit, "--limit", f"{size // 2}B")
    outcome = command(*limited, "--strict")
    assert (outcome.code, outcome.out) == (4, "")
    assert "--strict" in outcome.err
    assert command.files() == []
    assert command(*limited).code == 0


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


# -- what is drawn ---------------------------------------------------------------------------------

LAYER_ROWS = {
    "steps": "Step Trace",
    "overlap": "Overlap Analysis",
    "hardware": "Ascend Hardware",
    "communication": "Communication",
    "cann": "CANN",
    "framework": "python3",
    "scopes": "Scope Layer",
    "counters": "Counters",
}


def layer_rows(picture: TraceProcessor) -> set[str]:
    """The names of the layers of a picture grouped by rank."""
    return {
        row[row.index("Rank 0") + 1]
        for row in drawn_rows(picture).values()
        if "Rank 0" in row and len(row) > row.index("Rank 0") + 1
    }


@pytest.mark.parametrize("layer", LAYER_ROWS)
def test_layers(command: Command, profile: Profile, layer: str) -> None:
    """--layers draws the layers it names and no other."""
    arguments = (profile.path, "--group-by", "rank", "--layers", layer)
    for kind in ("summary", "detail"):
        picture = command.picture(*arguments, "--kind", kind)
        assert layer_rows(picture) == {LAYER_ROWS[layer]}


def test_default_layers(command: Command, profile: Profile) -> None:
    """A summary is steps and overlap; a detail is all but scopes, which --scopes adds."""
    arguments = (profile.path, "--group-by", "rank")
    assert layer_rows(command.picture(*arguments)) == {"Step Trace", "Overlap Analysis"}
    everything = set(LAYER_ROWS.values())
    detail = command.picture(*arguments, "--kind", "detail")
    assert layer_rows(detail) == everything - {"Scope Layer"}
    assert layer_rows(command.picture(*arguments, "--kind", "detail", "--scopes")) == everything
    assert detail.rows("SELECT count(*) > 0 FROM flow") == [(1,)]
    fewer = command.picture(*arguments, "--kind", "detail", "--layers", "hardware,cann")
    assert fewer.rows("SELECT count(*) FROM flow") == [(0,)]


@pytest.mark.parametrize("kind", ["summary", "detail"])
@pytest.mark.parametrize("group", [None, "rank", "layer"])
def test_group_by(command: Command, profile: Profile, kind: str, group: str | None) -> None:
    """Rows are grouped by rank or by layer; a summary is by layer and a detail by rank."""
    asked = () if group is None else ("--group-by", group)
    picture = command.picture(profile.path, "--kind", kind, *asked)
    outer, inner = (
        ({"Rank 0", "Rank 1"}, {"Step Trace", "Overlap Analysis"})
        if (group or {"summary": "layer", "detail": "rank"}[kind]) == "rank"
        else ({"Step Trace", "Overlap Analysis"}, {"Rank 0", "Rank 1"})
    )
    rows = set(drawn_rows(picture).values())
    assert outer <= {row[1] for row in rows if len(row) == 2}
    assert inner <= {row[2] for row in rows if len(row) == 3}


def test_merge_graphs(command: Command, profile: Profile) -> None:
    """Iterations of all graphs share a row and name their graph; apart, each graph has its own."""
    merged = drawn_slices(command.picture(profile.path), "Step Trace", "Rank 0", "Iterations")
    iterations = [one for one in merged if "Iteration" in one.name and "Refresh" not in one.name]
    assert {one.name for one in iterations} == {
        f"Graph {graph} Iteration {step}" for graph in (1, 3) for step in (1, 2, 3)
    }
    apart = drawn_slices(command.picture(profile.path, "--no-merge-graphs"), "Step Trace", "Rank 0")
    rows = {one.row[-1] for one in apart}
    assert {"Graph 1", "Graph 3"} <= rows
    assert "Iterations" not in rows
    for graph in (1, 3):
        own = [one for one in apart if one.row[-1] == f"Graph {graph}"]
        assert {f"Iteration {step}" for step in (1, 2, 3)} <= {one.name for one in own}
    spans = sorted((one.start_ns, one.end_ns) for one in iterations)
    assert spans == sorted((one.start_ns, one.end_ns) for one in profile.run.rank(0).iterations)


def drawn_args(picture: TraceProcessor) -> Counter[str]:
    """How many slices of hardware, communication and host carry each arg, by its last name."""
    found = picture.rows(
        "SELECT key, count(*) FROM slice JOIN args USING (arg_set_id)"
        " WHERE key NOT LIKE 'step.%' GROUP BY key"
    )
    return Counter({str(key).rpartition(".")[2]: int(count) for key, count in found})


@pytest.mark.parametrize("suffix", [".pftrace", ".json"])
def test_args(command: Command, profile: Profile, suffix: str) -> None:
    """--args none, default and all: no args, a short set, and everything the source gives."""
    sizes, shown = {}, {}
    for args in ("none", "default", "all"):
        name = f"{args}{suffix}"
        report = command.report(profile.path, "--kind", "detail", "--args", args, "-o", name)
        sizes[args] = report["outputs"][0]["bytes"]
        shown[args] = drawn_args(command.loaded(name))
    tasks = sum(hardware_tasks(rank) for rank in profile.run.ranks)
    assert shown["none"].keys() & shown["all"].keys() == set()
    assert shown["default"].keys() < shown["all"].keys()
    assert shown["default"]["task_type"] == tasks
    assert {"connection_id", "notify_id", "output_shapes"} <= shown["all"].keys()
    assert not {"connection_id", "notify_id"} & shown["default"].keys()
    assert sizes["none"] < sizes["default"] < sizes["all"]


# -- steps that are not marked ---------------------------------------------------------------------


def without_markers(shelf: ProfileShelf, destination: Path, **parameters: Any) -> Profile:
    """A profile without a step trace, as inference and older drivers leave it."""
    found = shelf.copy("mindstudio", destination, **parameters)
    for capture in found.captures:
        for path in capture.glob("mindstudio_profiler_output/step_trace_*"):
            path.unlink()
        for path in capture.glob("mindstudio_profiler_output/msprof_2*.json"):
            change_events(path, without_marker)
    return found


def without_marker(event: Event) -> Event | None:
    return None if int(event["tid"]) > 70_000 else event


@dataclass(frozen=True)
class Unmarked:
    """A profile without step markers, and the operators that a user would name."""

    profile: Profile
    forward: str
    backward: str

    def expected(self) -> list[tuple[int, int]]:
        """Forward start and backward end of each iteration of rank 0."""
        return [
            (self.run_of(one, self.forward)[0], self.run_of(one, self.backward)[1])
            for one in self.profile.run.rank(0).iterations
        ]

    def run_of(self, iteration: Iteration, operator: str) -> tuple[int, int]:
        """Start and end of an operator in an iteration."""
        (found,) = [
            (task.start_ns, task.end_ns)
            for task, kernel in iteration.kernels
            if kernel.scope.endswith(f"/{operator}")
        ]
        return found


@pytest.fixture
def unmarked(shelf: ProfileShelf, tmp_path: Path) -> Unmarked:
    found = without_markers(shelf, tmp_path / "unmarked", ranks=1)
    names = [kernel.scope for _, kernel in next(found.run.rank(0).iterations).kernels]
    (forward,) = [name for name in names if name.endswith("BNTrainingUpdate-op2")]
    backward = next(name for name in names if name.startswith("Gradients/"))
    return Unmarked(found, forward.rpartition("/")[2], backward.rpartition("/")[2])


def forward_backward(picture: TraceProcessor) -> list[tuple[int, int]]:
    """Start and end of each FP/BP slice."""
    return [
        (one.start_ns, one.end_ns)
        for one in drawn_slices(picture, "Step Trace")
        if one.name == "FP/BP"
    ]


def test_no_markers_and_no_operators(command: Command, unmarked: Unmarked) -> None:
    """Without markers, data fetches and named operators there are no steps, and it is said."""
    outcome = command(unmarked.profile.path)
    assert outcome.code == 0
    assert "no steps marked" in outcome.out
    report = command.report(unmarked.profile.path, "-o", "out.pftrace")
    assert whole_overlap(report, 0) == expected_overlap(unmarked.profile.run, 0)


@pytest.mark.parametrize(
    "way",
    [
        "options",
        "full names",
        "PROFILING_FP_START and PROFILING_BP_END",
        "FP_POINT and BP_POINT",
        "options over environment",
        "newer over older environment",
    ],
)
def test_named_operators(
    command: Command, unmarked: Unmarked, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """The operators that begin forward and end backward come from options or the environment."""
    forward, backward = unmarked.forward, unmarked.backward
    options = ["--fp-start", forward, "--bp-end", backward]
    if way == "full names":
        (first,) = {
            kernel.scope
            for one in unmarked.profile.run.rank(0).iterations
            for _, kernel in one.kernels
            if kernel.scope.endswith(f"/{forward}")
        }
        options[1] = first
    if way == "options over environment":
        monkeypatch.setenv("PROFILING_FP_START", "absent")
        monkeypatch.setenv("BP_POINT", "absent")
    if "environment" not in way and " and " in way:
        start, end = way.split(" and ")
        monkeypatch.setenv(start, forward)
        monkeypatch.setenv(end, backward)
        options = []
    if way == "newer over older environment":
        monkeypatch.setenv("PROFILING_FP_START", forward)
        monkeypatch.setenv("PROFILING_BP_END", backward)
        monkeypatch.setenv("FP_POINT", "absent")
        monkeypatch.setenv("BP_POINT", "absent")
        options = []
    path = unmarked.profile.path
    assert forward_backward(command.picture(path, *options)) == unmarked.expected()
    report = command.report(path, *options, "-o", "out.pftrace")
    assert report["outputs"][0]["steps"] == [1, 2, 3]
    assert [row["step"] for row in report["overlap"]] == [None, 1, 2, 3]


def test_markers_win_over_operators(command: Command, profile: Profile) -> None:
    """A graph whose steps the device has marked keeps those marks."""
    named = ("--fp-start", "BNTrainingUpdate-op2", "--bp-end", "BNTrainingUpdate-op2")
    options = (profile.path, "--ranks", "0")
    marks = [(one.forward_start_ns, one.backward_end_ns) for one in profile.run.rank(0).iterations]
    assert forward_backward(command.picture(*options)) == sorted(marks)
    assert forward_backward(command.picture(*options, *named)) == sorted(marks)


def test_steps_from_data_fetches(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """Unnamed: forward starts after get_next, backward ends before the last AllReduce begins."""
    found = without_markers(shelf, tmp_path / "run", ranks=1)
    (trace,) = found.captures[0].glob("mindstudio_profiler_output/msprof_2*.json")
    change_events(
        trace,
        lambda event: (
            event | {"name": "Default/GetNext-op0"} if event["name"] == "MEMCPY_ASYNC" else event
        ),
    )
    expected = []
    for one in found.run.rank(0).iterations:
        computing = [task for task, _ in one.kernels]
        last = max(reduce.start_ns for reduce in one.collectives)
        before = [task for task in computing if task.start_ns < last]
        expected.append((computing[0].start_ns, before[-1].end_ns))
    assert forward_backward(command.picture(found.path)) == expected


# -- windows and selections ------------------------------------------------------------------------


def device_tasks(rank: RankRun) -> list[tuple[int, int]]:
    """Start and end of every device task, in order."""
    tasks = [*rank.switches, *(task for one in rank.iterations for task in one.tasks)]
    return sorted((task.start_ns, task.end_ns) for task in tasks)


def drawn_spans(picture: TraceProcessor, *within: str) -> list[tuple[int, int]]:
    return sorted((one.start_ns, one.end_ns) for one in drawn_slices(picture, *within))


def test_window_is_half_open(command: Command, profile: Profile) -> None:
    """START is in and END is not; records that reach into the window are kept whole."""
    tasks = device_tasks(profile.run.rank(0))
    zero = tasks[0][0]
    start, end = tasks[40][1], tasks[120][0]
    ends_at_start = [task for task in tasks if task[1] == start > task[0]]
    starts_at_end = [task for task in tasks if task[0] == end]
    assert ends_at_start
    assert starts_at_end
    window = f"{start - zero}:{end - zero}"
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--window", window)
    drawn = drawn_spans(command.picture(*arguments), "Ascend Hardware")
    assert drawn == [
        task for task in tasks if task[0] < end and (task[1] > start or task[0] >= start)
    ]
    assert not set(ends_at_start) & set(drawn)
    assert not set(starts_at_end) & set(drawn)
    wider = f"{start - zero - 1}:{end - zero + 1}"
    drawn = drawn_spans(command.picture(*arguments[:-1], wider), "Ascend Hardware")
    assert set(ends_at_start) | set(starts_at_end) <= set(drawn)


def test_window_units(command: Command, profile: Profile) -> None:
    """A window is the same in ns, us, ms and s, and an empty edge is the end of the trace."""
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--window")
    spelled = (
        "6200000:9300000",
        "6200us:9300us",
        "6.2ms:9.3 ms",
        "0.0062s:0.0093s",
        "6.2ms:9300us",
    )
    drawn = [drawn_spans(command.picture(*arguments, window)) for window in spelled]
    assert drawn[0]
    assert all(other == drawn[0] for other in drawn)
    whole = drawn_spans(command.picture(*arguments[:-1]), "Ascend Hardware")
    for window in (":", "0:", ":100%", "0%:100%"):
        assert drawn_spans(command.picture(*arguments, window), "Ascend Hardware") == whole


def test_window_in_percent(command: Command, profile: Profile) -> None:
    """A percentage is a share of the time between the first and the last device record."""
    tasks = device_tasks(profile.run.rank(0))
    first, last = tasks[0][0], max(end for _, end in tasks)
    start, end = first + (last - first) * 40 // 100, first + (last - first) * 60 // 100
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--window", "40%:60%")
    drawn = drawn_spans(command.picture(*arguments), "Ascend Hardware")
    assert drawn == [
        task for task in tasks if task[0] < end and (task[1] > start or task[0] >= start)
    ]
    assert 0 < len(drawn) < len(tasks)


def test_window_of_a_step(command: Command, profile: Profile) -> None:
    """A window counts from the first record of the selection, not of the profile."""
    step = [one for one in profile.run.rank(0).iterations if one.number == 2]
    arguments = (profile.path, "--ranks", "0", "--kind", "detail", "--steps", "2", "--window")
    drawn = drawn_spans(command.picture(*arguments, "0:1"), "Ascend Hardware")
    first = min(one.start_ns for one in step)
    assert drawn == [
        span for span in device_tasks(profile.run.rank(0)) if first <= span[0] < first + 1
    ]
    outcome = command(*arguments, "5s:6s")
    assert outcome.code == 3
    assert "outside the selection" in outcome.err


@pytest.mark.parametrize(
    ("options", "graphs", "steps"),
    [
        (("--steps", "2"), (1, 3), (2,)),
        (("--steps", "2-3"), (1, 3), (2, 3)),
        (("--graphs", "3"), (3,), (1, 2, 3)),
        (("--graphs", "1", "--steps", "1,2"), (1,), (1, 2)),
        (("--graphs", "1,3", "--steps", "1-3"), (1, 3), (1, 2, 3)),
    ],
    ids=["a step", "a range of steps", "a graph", "steps of a graph", "all by name"],
)
def test_selection_is_exact(
    command: Command,
    profile: Profile,
    options: Sequence[str],
    graphs: Sequence[int],
    steps: Sequence[int],
) -> None:
    """Graphs and steps keep exactly their own records, all names, and their own overlap."""
    report = command.report(profile.path, "--kind", "detail", *options, "-o", "out.pftrace")
    picture = command.loaded("out.pftrace")
    for rank in profile.run.ranks:
        chosen = [one for one in rank.iterations if one.graph in graphs and one.number in steps]
        assert whole_overlap(report, rank.rank) == overlap_of(chosen)
        per_step = {
            (row["graph"], row["step"]): {field: row[field] for field in OVERLAP_FIELDS}
            for row in report["overlap"]
            if row["rank"] == rank.rank and row["step"] is not None
        }
        assert per_step == {
            (one.graph, one.number): expected_overlap(profile.run, rank.rank, one.number, one.graph)
            for one in chosen
        }
        own = drawn_slices(picture, f"Rank {rank.rank}")
        hardware = [one for one in own if "Ascend Hardware" in one.row]
        tasks = [task for one in chosen for task in one.tasks]
        switches = rank.switches if "--steps" not in options and len(graphs) == 2 else ()
        assert sorted((one.start_ns, one.end_ns) for one in hardware) == sorted(
            (task.start_ns, task.end_ns) for task in (*tasks, *switches)
        )
        rows = {one.row[-1] for one in own}
        streams = {f"Stream {task.stream}" for task in tasks}
        planes = {"Plane 0", "Plane 1", "Group 0 Communication"}
        assert streams | planes | {"Computing", "Free", "Iterations", "Reduce"} <= rows
        reduces = [one for one in own if one.row[-1] == "Reduce"]
        assert sorted((one.start_ns, one.end_ns) for one in reduces) == sorted(
            (reduce.start_ns, reduce.end_ns) for one in chosen for reduce in one.collectives
        )


def test_time_between_chosen_steps_counts_for_none(command: Command, profile: Profile) -> None:
    """Steps apart from each other are taken together without the time between them."""
    report = command.report(profile.path, "--steps", "1,3", "-o", "out.pftrace")
    for rank in profile.run.ranks:
        parts = [
            overlap_of(one for one in rank.iterations if one.number == step) for step in (1, 3)
        ]
        expected = {field: sum(part[field] for part in parts) for field in OVERLAP_FIELDS}
        assert whole_overlap(report, rank.rank) == expected


def test_steps_of_host_windows(command: Command, shelf: ProfileShelf) -> None:
    """A step of torch_npu is what it launched, however late that ran on the device."""
    for layout in ("torch-text", "torch-db"):
        found = shelf.get(layout)
        report = command.report(found.path, "--kind", "detail", "--steps", "2", "-o", "out.pftrace")
        picture = command.loaded("out.pftrace")
        for rank in found.run.ranks:
            assert whole_overlap(report, rank.rank) == expected_overlap(found.run, rank.rank, 2)
            (step,) = [step for step in rank.steps if step.id == 2]
            tasks = [task for one in step.iterations for task in one.tasks]
            drawn = drawn_spans(picture, f"Rank {rank.rank}", "Ascend Hardware")
            assert drawn == sorted((task.start_ns, task.end_ns) for task in tasks)


def test_selected_rank_of_many(command: Command, shelf: ProfileShelf) -> None:
    """Ranges of ranks include both ends, and rows stay in the order of numbers."""
    many = shelf.get("torch-db", ranks=12, steps=1)
    report = command.report(many.path, "--ranks", "0,9-11", "-o", "out.pftrace")
    assert [row["rank"] for row in report["ranks"]] == [0, 9, 10, 11]
    found = command.loaded("out.pftrace").rows(
        "SELECT name FROM track WHERE name GLOB 'Rank *' AND parent_id ="
        " (SELECT id FROM track WHERE name = 'Overlap Analysis')"
    )
    assert {name for (name,) in found} == {"Rank 0", "Rank 9", "Rank 10", "Rank 11"}
    listed = command(many.path, "--list").out.splitlines()[1:13]
    assert [line.split()[0] for line in listed] == [str(rank) for rank in range(12)]


# -- the installed command -------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["module", "script"])
def test_as_a_process(command: Command, shelf: ProfileShelf, way: str) -> None:
    """`tlexport` and `python -m timeline` do what `main` does, in a process of their own."""
    script = Path(sysconfig.get_path("scripts")) / "tlexport"
    start = [sys.executable, "-m", "timeline"] if way == "module" else [str(script)]
    found = shelf.get("torch-db")

    def run(*arguments: str, cwd: Path = command.directory) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"COLUMNS": "100"}
        return subprocess.run(
            [*start, *arguments], capture_output=True, text=True, cwd=cwd, env=environment
        )

    assert run("--version").stdout == f"tlexport {__version__}\n"
    output = str(command.directory / "out.pftrace")
    exported = run("--ranks", "0,1", "--kind", "summary", "-o", output, cwd=found.path)
    assert (exported.returncode, exported.stderr) == (0, "")
    assert "Wrote " in exported.stdout
    command.loaded("out.pftrace")
    refused = run("--ranks", "7", cwd=found.path)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert refused.stderr.startswith("tlexport: rank 7 is not in .: found ranks 0,1.")
    assert run("--no-such-option").returncode == 2
    assert sorted(path.name for path in found.path.iterdir()) == sorted(
        capture.name for capture in found.captures
    )


def test_help_tells_every_option(command: Command) -> None:
    """--help shows all options and the examples, and exits with 0."""
    ran = subprocess.run(
        [sys.executable, "-m", "timeline", "--help"], capture_output=True, text=True, check=True
    )
    options = (
        *("--ranks", "--graphs", "--steps", "--window", "--layers", "--assign-rank", "--kind"),
        *("--group-by", "--merge-graphs", "--no-merge-graphs", "--scopes", "--args"),
        *("--fp-start", "--bp-end", "--output", "--limit", "--fit", "--force", "--strict"),
        *("--list", "--csv", "--json", "--verbose", "--quiet", "--version"),
    )
    for option in options:
        assert option in ran.stdout
    assert ran.stdout.index("tlexport prof --list") < ran.stdout.index("options:")
