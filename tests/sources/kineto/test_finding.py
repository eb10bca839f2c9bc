"""Proves that each PyTorch trace in a directory is found and its rank is right."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.found_profiles import ranks_of
from tests.support.profile_shelf import Copier, ProfileShelf
from timeline.cli.main import main
from timeline.errors import NoProfileError, RankIdentityError, SourceError
from timeline.selection import DETAIL_LAYERS
from timeline.sources.common.export_files import (
    GLANCE_BYTES,
    JsonKind,
    find_event_time_ns,
    kind_of_json,
)
from timeline.sources.finding.discovery import FindingOptions, discover
from timeline.sources.kineto.header import KinetoHeader, KinetoName, read_header, read_name
from timeline.sources.source import ReadRequest

EVENT = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5}


def write(path: Path, rank: int | None = None, *, at_end: bool = False, **head: Any) -> Path:
    """A small trace; what it says of its rank stands before or behind its events."""
    info = {} if rank is None else {"distributedInfo": {"backend": "nccl", "rank": rank}}
    before = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], **({} if at_end else info)}
    document = before | head | {"traceEvents": [EVENT]} | (info if at_end else {})
    data = json.dumps(document).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


# -- what is found ---------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["kineto", "kineto-2.2"])
def test_found_from_any_directory_and_from_one_file(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """Each file is a capture of its own, packed or not."""
    profile = shelf.copy(layout, tmp_path / "team" / "run")
    for path in (profile.path, tmp_path):
        found = discover(path).sources
        assert [source.identity.directory for source in found] == list(profile.captures)
        assert {source.layout for source in found} == {"PyTorch trace"}
        assert ranks_of(path) == [0, 1]
    for rank, capture in enumerate(profile.captures):
        assert ranks_of(capture) == [rank]


@pytest.mark.parametrize("name", ["trace.json", "my model.json.gz", "prof_7.json"])
def test_any_name_will_do_where_the_content_tells(tmp_path: Path, name: str) -> None:
    """export_chrome_trace takes whatever name it is given."""
    path = write(tmp_path / name, 3)
    assert ranks_of(tmp_path) == ranks_of(path) == [3]


@pytest.mark.parametrize(
    "text",
    [
        '{"schemaVersion": 2, "mediaType": "x", "layers": []}',
        '{"schemaVersion": "1.0.1", "traceEvents": []}',
        '{"baseTimeNanoseconds": 0, "traceEvents": []}',
        '[{"schemaVersion": 1, "traceEvents": []}]',
        '"schemaVersion"',
        "{",
        "",
        "\x00" * 100,
    ],
)
def test_other_files_are_not_taken_for_traces(tmp_path: Path, text: str) -> None:
    """Manifests, traces of other programs, and what is no JSON at all."""
    for data in (text.encode(), gzip.compress(text.encode()), gzip.compress(text.encode())[:12]):
        path = tmp_path / "some.json"
        path.write_bytes(data)
        assert kind_of_json(path) is not JsonKind.KINETO
        with pytest.raises(NoProfileError):
            discover(tmp_path)
        with pytest.raises(NoProfileError):
            discover(path)


def test_a_timeline_is_not_read_as_a_profile(copied: Copier) -> None:
    """What this program writes as JSON looks alike; a second export must not find the first."""
    profile = copied("kineto")
    assert main([str(profile.path), "-o", str(profile.path / "rank0.json")]) == 0
    assert ranks_of(profile.path) == [0, 1]


def test_other_captures_below_are_found_too(copied: Copier) -> None:
    """A trace says nothing of the directories beside it."""
    profile = copied("torch-text")
    write(profile.path / "gpu.json", 7)
    found = discover(profile.path)
    assert [source.identity.rank for source in found.sources] == [0, 1]
    assert "time not known, rank 7" in found.notes[0]


def test_a_trace_inside_a_capture_of_another_layout_is_not_read(copied: Copier) -> None:
    """The richer layout wins."""
    profile = copied("torch-text")
    for capture in profile.captures:
        write(capture / "ASCEND_PROFILER_OUTPUT" / "gpu.json", 7)
        write(capture / "rank7.pt.trace.json", 7)
    assert ranks_of(profile.path) == [0, 1]


# -- whose it is -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
@pytest.mark.parametrize("at_end", [False, True])
def test_the_trace_tells_its_rank_before_or_behind_its_events(
    tmp_path: Path, name: str, at_end: bool
) -> None:
    """Behind them where it was taken on demand."""
    path = write(tmp_path / name, 5, at_end=at_end, baseTimeNanoseconds=17)
    assert read_header(path) == KinetoHeader(5, 17)
    assert ranks_of(tmp_path) == [5]


def test_the_head_may_be_long(tmp_path: Path) -> None:
    """Runs of many process groups list the ranks of each."""
    groups = [{"pg_name": str(name), "ranks": list(range(64))} for name in range(2_000)]
    path = write(tmp_path / "trace.json", None, pg_config=groups, distributedInfo={"rank": 9})
    assert path.stat().st_size > 8 * GLANCE_BYTES
    assert kind_of_json(path) is JsonKind.KINETO
    assert read_header(path).rank == 9


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz", 34),
        ("rank_3.json", 3),
        ("inference_RANK7_trace.json", 7),
        ("dp0_tp1_rank12.1736424000142223000.pt.trace.json", 12),
        ("node1/rank4/trace.json", 4),
        ("rank_6/host_5_1.1736424000142.pt.trace.json", 6),
        ("rank_6/rank_2.json", 2),
    ],
)
def test_a_name_tells_the_rank_where_the_trace_does_not(
    tmp_path: Path, name: str, rank: int
) -> None:
    """The name of the file, else that of a directory."""
    write(tmp_path / name)
    assert ranks_of(tmp_path) == [rank]


def test_the_trace_knows_better_than_names(tmp_path: Path) -> None:
    """Names often number the processes of one machine."""
    write(tmp_path / "node1" / "rank_0" / "rank_0.pt.trace.json", 8)
    assert ranks_of(tmp_path) == [8]


@pytest.mark.parametrize("name", ["trace.json", "local_rank_3.json", "franken3.json", "rank.json"])
def test_a_trace_of_no_rank_is_rank_0(tmp_path: Path, name: str) -> None:
    """It was not distributed; that is assumed and said, and another rank can be given."""
    write(tmp_path / name)
    found = discover(tmp_path)
    assert [source.identity.rank for source in found.sources] == [0]
    assert "not distributed" in found.notes[0]
    assert name in found.notes[0]
    assert ranks_of(tmp_path, {name: 4}) == [4]
    assert ranks_of(tmp_path, {str(tmp_path / name): 4}) == [4]


def test_a_name_of_two_ranks_asks_which(tmp_path: Path) -> None:
    """Neither is taken."""
    write(tmp_path / "rank0_of_rank8.json")
    with pytest.raises(RankIdentityError, match="contradictory"):
        discover(tmp_path)


@pytest.mark.parametrize("info", [{"rank": -1}, {"rank": "x"}, {"rank": None}, [], None, 3])
def test_what_is_no_rank_is_not_taken_for_one(tmp_path: Path, info: Any) -> None:
    """A run that never joined its group."""
    write(tmp_path / "rank2.json", distributedInfo=info)
    assert ranks_of(tmp_path) == [2]


def test_ranks_that_are_taken_twice_are_an_error(tmp_path: Path) -> None:
    """Two files that claim one rank and do not tell which is newer."""
    write(tmp_path / "a.json", 1)
    write(tmp_path / "b.json", 1)
    with pytest.raises(RankIdentityError, match="appears twice"):
        discover(tmp_path)


def test_the_newest_trace_of_a_process_is_read(copied: Copier) -> None:
    """A schedule that repeats leaves a trace of each turn; the older ones are named."""
    profile = copied("kineto")
    older = profile.path / "host_12340.1736420000140000000.pt.trace.json"
    shutil.copyfile(profile.captures[0], older)
    found = discover(profile.path)
    assert [source.identity.directory for source in found.sources] == list(profile.captures)
    (note,) = found.notes
    assert older.name in note


def test_names_of_the_handler_tell_process_and_time() -> None:
    """In milliseconds by older versions, in nanoseconds by newer ones."""
    wanted = KinetoName((), "host_12", "20250109120000142")
    assert read_name("host_12.1736424000142.pt.trace.json") == wanted
    assert read_name("host_12.1736424000142223000.pt.trace.json.gz") == wanted
    assert read_name("host_12.pt.trace.json") == KinetoName(())


# -- broken files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"schemaVersion": 1}', b"\x1f\x8b\x08"])
def test_a_named_trace_that_cannot_be_read_is_an_error(tmp_path: Path, data: bytes) -> None:
    """Its name says what it should be, so it is not passed over."""
    path = tmp_path / "host_1.1736424000142.pt.trace.json"
    path.write_bytes(data)
    with pytest.raises(
        SourceError, match=rf"pt\.trace\.json{'' if not data else ', byte [0-9]+'}: "
    ):
        discover(tmp_path)
    write(tmp_path / "rank1.json", 1)
    found = discover(tmp_path, finding=FindingOptions(keep_going=True))
    assert [source.identity.rank for source in found.sources] == [1]
    assert "is left out" in found.notes[0]


QUOTED = '"note": "has /"quotes/" inside"'
GROUP = '{"pg_name": "0", "pg_desc": "a "b" {", "ranks": [0, 3]}'


@pytest.mark.parametrize(
    ("head", "damaged", "rank"),
    [
        (f'"schemaVersion": 1, {QUOTED}, "distributedInfo": {{"rank": 3}}', ("note",), 3),
        (f'{QUOTED}, "schemaVersion": 1, "distributedInfo": {{"rank": 3}}', ("note",), 3),
        ('"schemaVersion": 1, "note": "a\nb", "distributedInfo": {"rank": 3}', ("note",), 3),
        ('"schemaVersion": 1, "note": inf, "distributedInfo": {"rank": 3}', ("note",), 3),
        (
            f'"schemaVersion": 1, "distributedInfo": {{"pg_config": [{GROUP}], "rank": 3}}',
            ("distributedInfo",),
            3,
        ),
        (
            '"schemaVersion": 1, "distributedInfo": {"backend": "n"ccl", "rank": 3}',
            ("distributedInfo",),
            3,
        ),
        ('"schemaVersion": 1, "distributedInfo": {"rank" 0}', ("distributedInfo",), None),
    ],
)
def test_metadata_that_is_no_json_loses_only_itself(
    tmp_path: Path, head: str, damaged: tuple[str, ...], rank: int | None
) -> None:
    """PyTorch writes metadata of users as it is; the rest of the head and the events are read."""
    path = tmp_path / "trace.json"
    events = ", ".join([json.dumps(EVENT | {"ts": at}) for at in (1, 2, 3)])
    path.write_text(
        f'{{{head}, "baseTimeNanoseconds": 7000, "traceEvents": [{events}]}}', encoding="utf-8"
    )
    assert [source.identity.rank for source in discover(tmp_path).sources] == [rank or 0]
    header = read_header(path)
    assert header == KinetoHeader(rank, 7000, None, header.groups, damaged)
    records = discover(tmp_path).sources[0].read(ReadRequest(DETAIL_LAYERS))
    assert len(records.tasks) + len(records.host) == 3
    assert [(one.reason, one.rows) for one in records.omissions if one.loss] == [
        (
            f'trace.json: metadata values that are not valid JSON, the first at "{damaged[0]}"',
            len(damaged),
        )
    ]


# -- what is a trace -------------------------------------------------------------------------------


def test_a_trace_is_known_by_what_it_holds_in_whatever_order(tmp_path: Path) -> None:
    """Facts that others put first, events before all else, and no keys but the events."""
    facts = {"metadata": {"text": "x" * 3 * GLANCE_BYTES}}
    more_facts = {"schemaVersion": 1, "deviceProperties": [{"id": 0}], "baseTimeNanoseconds": 17}
    events = {"traceEvents": [EVENT | {"name": "x" * 100} for _ in range(2_000)]}
    for number, document in enumerate(
        (facts | more_facts | events, events | more_facts, events, events | facts)
    ):
        path = tmp_path / str(number) / "some.json"
        path.parent.mkdir()
        path.write_text(json.dumps(document), encoding="utf-8")
        assert kind_of_json(path) is JsonKind.KINETO
        (source,) = discover(path.parent).sources
        assert len(source.read(ReadRequest(DETAIL_LAYERS)).tasks) == 2_000
        assert read_header(path).base_ns == (17 if number < 2 else 0)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    """PyTorch wrote them so in 2020, with categories that begin with capitals."""
    operator = {"ph": "X", "cat": "Operator", "name": "aten::mm", "pid": 1, "tid": 1}
    named = {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}}
    kernel = EVENT | {"cat": "Kernel", "args": {"stream": 7, "device": 0, "correlation": 3}}
    events = [named, operator | {"ts": 1, "dur": 20}, kernel]
    path = tmp_path / "old.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    for found in (discover(path), discover(tmp_path)):
        (source,) = found.sources
        assert source.identity.rank == 0
        records = source.read(ReadRequest(DETAIL_LAYERS))
        assert records.tasks.start_ns.tolist() == [10_000]
        assert len(records.host) == 1


def test_the_zero_of_times_counts_wherever_it_stands(tmp_path: Path) -> None:
    """Behind the events, where the rank stands before them."""
    path = write(tmp_path / "trace.json", 3)
    document = json.loads(path.read_text(encoding="utf-8")) | {"baseTimeNanoseconds": 10**18}
    path.write_text(json.dumps(document), encoding="utf-8")
    assert read_header(path) == KinetoHeader(3, 10**18)
    (source,) = discover(path).sources
    assert source.read(ReadRequest(DETAIL_LAYERS)).tasks.start_ns.tolist() == [10**18 + 10_000]


def test_an_execution_trace_does_not_refuse_its_directory(tmp_path: Path) -> None:
    """Whatever it is called: it is passed over by name, and alone it is said to be none."""
    write(tmp_path / "trace.json", 0)
    path = tmp_path / "rank0_et.pt.trace.json"
    nodes = {"schema": "1.1.1-chakra.0.0.4", "pid": 1, "time": "now", "nodes": [{"id": 1}]}
    path.write_text(json.dumps(nodes), encoding="utf-8")
    found = discover(tmp_path)
    assert [source.identity.directory.name for source in found.sources] == ["trace.json"]
    (note,) = found.notes
    assert path.name in note
    assert "execution trace" in note
    with pytest.raises(NoProfileError, match="is an execution trace"):
        discover(path)


def test_traces_of_other_programs_are_named(tmp_path: Path) -> None:
    """What looks like a profile is not passed over without a word; other JSON is."""
    write(tmp_path / "trace.json", 0)
    events = {"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]}
    (tmp_path / "other.json").write_text(json.dumps(events), encoding="utf-8")
    (tmp_path / "config.json").write_text('{"layers": 3}', encoding="utf-8")
    (note,) = discover(tmp_path).notes
    assert "other.json was not read" in note


# -- runs of traces --------------------------------------------------------------------------------


def written_at(path: Path, at_s: int, rank: int | None) -> Path:
    """A trace whose one kernel ran so many seconds after some moment."""
    write(path, rank)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["traceEvents"] = [EVENT | {"ts": (1_700_000_000 + at_s) * 1_000_000, "dur": 900_000}]
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_ranks_of_two_runs_in_one_directory_never_meet(tmp_path: Path) -> None:
    """Names of the handler tell when each was written; the newer four are read."""
    for run, written_ns in enumerate((1_698_955_364 * 10**9, 1_698_955_629 * 10**9)):
        for rank in range(4):
            name = f"host_{run}{rank}.{written_ns + rank * 10**6}.pt.trace.json"
            write(tmp_path / name, rank)
    found = discover(tmp_path)
    assert [source.identity.rank for source in found.sources] == [0, 1, 2, 3]
    assert all("1698955629" in source.identity.directory.name for source in found.sources)
    (note,) = found.notes
    assert "2 runs" in note
    assert "2023-11-02 20:02:44 UTC, ranks 0-3" in note


def test_times_of_events_tell_runs_apart_where_names_do_not(tmp_path: Path) -> None:
    """rank0.json of one day and rank1.json of another are no pair."""
    written_at(tmp_path / "rank0.json", 0, 0)
    written_at(tmp_path / "rank1.json", 1, 1)
    assert ranks_of(tmp_path) == [0, 1]
    written_at(tmp_path / "rank1.json", 86_400, 1)
    assert ranks_of(tmp_path) == [1]


def test_traces_of_no_rank_are_ranks_only_where_they_overlap(tmp_path: Path) -> None:
    """Benchmarks that one process ran after another are runs, each of rank 0."""
    written_at(tmp_path / "a.json", 0, None)
    written_at(tmp_path / "b.json", 0, None)
    assert ranks_of(tmp_path) == [0, 1]
    written_at(tmp_path / "a.json", 10, None)
    (source,) = discover(tmp_path).sources
    assert (source.identity.rank, source.identity.directory.name) == (0, "a.json")


def test_a_listing_refuses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It lists what is there: all runs, and what is wrong with captures, in JSON too."""
    written_at(tmp_path / "old.json", -86_400, 0)
    written_at(tmp_path / "rank0_of_rank8.json", 0, None)
    written_at(tmp_path / "whole.json", 0, 3)
    assert main([str(tmp_path), "-o", str(tmp_path / "out.pftrace")]) == 1
    error = capsys.readouterr().err
    assert "contradictory rank ids" in error
    assert main([str(tmp_path), "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [rank["rank"] for rank in listed["ranks"]] == [3]
    assert [run["listed"] for run in listed["runs"]] == [False, True]
    assert listed["runs"][0]["ranks"] == [0]
    assert listed["runs"][0]["path"] == str(tmp_path / "old.json")
    (unclear,) = listed["unclear"]
    assert unclear["source"].endswith("rank0_of_rank8.json")
    assert "says 0" in unclear["problem"]
    assert main([str(tmp_path), "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("not clear" in line and "rank0_of_rank8.json" in line for line in lines)
    assert any("old.json" in line for line in lines)


def test_a_capture_that_is_not_clear_is_named_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error of a file begins with its path."""
    written_at(tmp_path / "whole.json", 0, 3)
    (tmp_path / "r.pt.trace.json").touch()
    assert main([str(tmp_path), "--list"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if "not clear" in one]
    assert line.startswith(f"not clear: {tmp_path / 'r.pt.trace.json'}: is empty.")


def test_a_time_of_endless_digits_is_no_moment(tmp_path: Path) -> None:
    """Python makes no number of so many, and no clock counts so far."""
    path = write(tmp_path / "trace.pt.trace.json")
    path.write_text(path.read_text().replace('"ts": 10', f'"ts": {"9" * 5000}'))
    assert find_event_time_ns(path) is None


@pytest.mark.parametrize(
    "text", ['{"traceEvents":[{"name":"a","ts"', '[{"ph": "X", "args": {"a": {}']
)
def test_a_trace_that_is_cut_in_its_first_event_is_said_to_be_cut(
    tmp_path: Path, text: str
) -> None:
    """Nothing tells whose it is; with one whole event it is a trace of another program."""
    path = tmp_path / "broken.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(NoProfileError, match="is a trace that is cut in its first event"):
        discover(path)
    with pytest.raises(NoProfileError) as caught:
        discover(tmp_path)
    assert "broken.json was not read: it is a trace that is cut" in "\n".join(caught.value.lines())
    path.write_text('[{"ph": "X", "args": {"a": {}}}, {"ph": "X"', encoding="utf-8")
    with pytest.raises(NoProfileError, match="is a trace of another program"):
        discover(path)


# -- copies, and runs that only their directories set apart ----------------------------------------


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("inside", ["", "packed"])
def test_a_packed_trace_beside_its_plain_copy_is_one_rank(
    tmp_path: Path, packing: str, inside: str
) -> None:
    """The plain one is read, wherever the other lies; several copies are summed up in notes."""
    pack = getattr({"gz": gzip, "bz2": bz2, "xz": lzma}[packing], "compress")  # noqa: B009
    (tmp_path / inside).mkdir(exist_ok=True)
    for rank in range(6):
        path = write(tmp_path / f"rank{rank}.pt.trace.json", rank)
        (tmp_path / inside / f"{path.name}.{packing}").write_bytes(pack(path.read_bytes()))
    found = discover(tmp_path)
    assert [one.identity.directory.name for one in found.sources] == [
        f"rank{rank}.pt.trace.json" for rank in range(6)
    ]
    assert len(found.notes) == 4
    assert f"rank0.pt.trace.json.{packing} is a copy of" in found.notes[0]
    assert found.notes[-1].startswith("3 more captures are copies")
    (source,) = discover(tmp_path / inside / f"rank5.pt.trace.json.{packing}").sources
    assert len(source.read(ReadRequest(DETAIL_LAYERS)).tasks) == 1


def test_a_packed_trace_of_other_content_is_no_copy(tmp_path: Path) -> None:
    """It is not known which of both is the rank."""
    write(tmp_path / "rank1.json", 1)
    write(tmp_path / "rank1.json.gz", 1, baseTimeNanoseconds=17)
    with pytest.raises(RankIdentityError, match="appears twice"):
        discover(tmp_path)


@pytest.mark.parametrize("ranks", [2, 3])
def test_directories_that_repeat_ranks_are_runs(
    tmp_path: Path, ranks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recorded at one time, none is the newest: the error names both, and a list shows both.

    One rank may be the same in both.
    """
    for run in ("after", "before"):
        for rank in range(ranks):
            path = tmp_path / run / f"rank{rank}.json"
            written_at(path, 5, rank)
            path.write_text(path.read_text() + "\n" * (run == "after" and rank > 0))
    assert main([str(tmp_path)]) == 1
    said = capsys.readouterr().err
    spelled = "0,1" if ranks == 2 else "0-2"
    assert f"two runs of the same time: before (ranks {spelled}), after (ranks {spelled})" in said
    assert f"tlexport {tmp_path / 'before'}, or compare" in said
    assert f"tlexport compare {tmp_path / 'before'} {tmp_path / 'after'}" in said
    assert main([str(tmp_path), "--list", "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(Path(run["path"]).name, run["ranks"]) for run in runs] == [
        ("before", list(range(ranks))),
        ("after", list(range(ranks))),
    ]
    assert ranks_of(tmp_path / "after") == list(range(ranks))


def test_directories_that_share_no_rank_are_one_run(tmp_path: Path) -> None:
    """A rank that is there twice makes no runs of the directories of hosts."""
    for rank in range(4):
        write(tmp_path / f"node{rank // 2}" / f"rank{rank}.json", rank)
    write(tmp_path / "more" / "rank0.json", 0, baseTimeNanoseconds=17)
    with pytest.raises(RankIdentityError, match="appears twice"):
        discover(tmp_path)


@pytest.mark.parametrize("broken", [1, 2])
@pytest.mark.parametrize("data", [b"", b'{"schemaVersion": 1, "deviceProperties": [], "traceEv'])
def test_an_error_of_one_rank_names_what_reads_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], broken: int, data: bytes
) -> None:
    """Of one file alone there are no others; with the option ranks left out are notes."""
    for rank in range(4):
        write(tmp_path / f"rank{rank}.pt.trace.json", rank)
    for rank in range(broken):
        (tmp_path / f"rank{rank}.pt.trace.json").write_bytes(data)
    assert main([str(tmp_path), "--verdict"]) == 1
    assert "To read the other ranks, add --keep-going." in capsys.readouterr().err
    assert main([str(tmp_path / "rank0.pt.trace.json"), "--verdict"]) == 1
    assert "To read the other ranks" not in capsys.readouterr().err
    assert main([str(tmp_path), "--verdict", "--keep-going", "-q"]) == 0
    assert capsys.readouterr().err.count("is left out") == broken
