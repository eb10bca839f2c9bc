"""Proves that a PyTorch trace that holds several ranks is split into them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator.writers.kineto import write_kineto, write_merged_kineto
from tests.support.found_profiles import overlap_ns, ranks_of, read
from tests.support.profile_shelf import Event, tiny_run
from timeline.errors import RankIdentityError
from timeline.records.tables import OmissionCode, Records
from timeline.sources.finding.discovery import FindingOptions, discover

Documents = list[dict[str, Any]]


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The traces of three ranks, each in a file of its own."""
    return write_kineto(tiny_run(ranks=3), tmp_path_factory.mktemp("apart"))


def documents(paths: Sequence[Path]) -> Documents:
    texts = (
        gzip.decompress(one.read_bytes()) if one.suffix == ".gz" else one.read_bytes()
        for one in paths
    )
    return [json.loads(text) for text in texts]


def label(labels: Sequence[str]) -> Callable[[Documents], dict[str, Any]]:
    """What puts a label before each pid, as SGLang does, under the head of the first trace."""

    def merge(traces: Documents) -> dict[str, Any]:
        events = [
            event | {"pid": f"[{name}] {event['pid']}"}
            for name, trace in zip(labels, traces, strict=True)
            for event in trace["traceEvents"]
        ]
        return traces[0] | {"traceEvents": events}

    return merge


def move(step: int, *, ranks: bool = False, names: bool = False) -> Callable[[Documents], Any]:
    """What moves each pid by a multiple of a step, without a head, as TraceFusion does.

    ranks: whether events name their rank, and correlations are moved too. names: whether processes
    are named after it instead.
    """

    def moved(event: Event, rank: int) -> Event:
        made, args = dict(event), dict(event.get("args", {}))
        if isinstance(event["pid"], int):
            made["pid"] += rank * step
        if "id" in made:
            made["id"] += rank * 100_000
        if ranks:
            args["rank"] = rank
            if "correlation" in args:
                args["correlation"] += rank * 1_000_000
        if names and event["name"] == "process_name":
            args["name"] = f"RANK {rank} - CPU"
        return made | {"args": args}

    return lambda traces: {
        "traceEvents": [
            moved(event, rank)
            for rank, trace in enumerate(traces)
            for event in trace["traceEvents"]
        ]
    }


MERGERS = {
    "one axis": label(["TP00", "TP01", "TP02"]),
    "ranks of one axis": label(["TP00-DP00-PP00", "TP01-DP00-PP00", "TP02-DP01-PP00"]),
    "two axes": label(["TP00-DP00", "TP01-DP00", "TP00-DP01"]),
    "pipeline": label(["TP00-PP00", "TP00-PP01", "TP00-PP02"]),
    "moved": move(100_000_000),
    "moved, with ranks": move(10_000_000, ranks=True),
    "moved, with names": move(100_000, names=True),
}


@pytest.mark.parametrize("merge", MERGERS.values(), ids=MERGERS)
@pytest.mark.parametrize("lost", [None, 1], ids=["whole", "one without kernels"])
def test_each_part_equals_the_trace_of_its_rank(
    traces: list[Path], tmp_path: Path, merge: Callable[[Documents], Any], lost: int | None
) -> None:
    """Tasks, ops, calls, launches, arrows, memory and groups, whoever merged the traces."""
    apart = documents(traces)
    if lost is not None:
        apart[lost]["traceEvents"] = [
            event for event in apart[lost]["traceEvents"] if event.get("cat") not in DEVICE
        ]
    base_ns = apart[0]["baseTimeNanoseconds"]
    merged = merge(apart)
    for number, trace in enumerate(apart):
        (tmp_path / f"rank{number}.json").write_text(json.dumps(trace), encoding="utf-8")
    together = tmp_path / "together" / "merged.json"
    together.parent.mkdir()
    together.write_text(json.dumps(merged), encoding="utf-8")
    sources = discover(together).sources
    assert [source.identity.rank for source in sources] == [0, 1, 2]
    shift_ns = 0 if "baseTimeNanoseconds" in merged else base_ns
    for number, source in enumerate(sources):
        (alone,) = discover(tmp_path / f"rank{number}.json").sources
        same_records(read(source), read(alone), shift_ns)


DEVICE = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation"})


def same_records(mine: Records, theirs: Records, shift_ns: int) -> None:
    """Whether two ranks are the same, the first of which may lie earlier by a constant."""
    for table in ("tasks", "ops", "host", "steps"):
        one, other = getattr(mine, table), getattr(theirs, table)
        assert (one.start_ns + shift_ns).tolist() == other.start_ns.tolist()
        assert (one.end_ns + shift_ns).tolist() == other.end_ns.tolist()
    launched = theirs.tasks.launch_ns > 0
    assert (mine.tasks.launch_ns + shift_ns)[launched].tolist() == theirs.tasks.launch_ns[
        launched
    ].tolist()
    assert mine.host.process.tolist() == theirs.host.process.tolist()
    assert mine.tasks.device.tolist() == theirs.tasks.device.tolist()
    assert mine.flows.target_row.tolist() == theirs.flows.target_row.tolist()
    assert mine.samples.value.tolist() == theirs.samples.value.tolist()
    texts = [
        [records.strings[code] for code in records.ops.group_name.tolist()]
        for records in (mine, theirs)
    ]
    assert texts[0] == texts[1]
    assert overlap_ns(mine) == overlap_ns(theirs)
    assert half_arrows(mine) == (0 if shift_ns and mine.rank else half_arrows(theirs))


def half_arrows(records: Records) -> int:
    """Arrows that are said to lack an end, as those from calls that launch no task do."""
    return sum(one.rows for one in records.omissions if one.code is OmissionCode.ARROW_HALF)


def test_a_merged_trace_beside_its_parts_is_left_out(traces: list[Path], tmp_path: Path) -> None:
    """All of it, or those ranks whose own traces are there; a note says so."""
    merged = write_merged_kineto(tiny_run(ranks=3), tmp_path)[0].parent
    for path in traces:
        (tmp_path / path.name).write_bytes(path.read_bytes())
    found = discover(tmp_path)
    assert [source.identity.directory.name for source in found.sources] == [
        path.name for path in traces
    ]
    assert (
        f"{merged.name} is left out: it was merged from traces that are beside it." in found.notes
    )
    (tmp_path / traces[1].name).unlink()
    found = discover(tmp_path)
    assert [source.identity.directory.name for source in found.sources] == [
        traces[0].name,
        merged.name,
        traces[2].name,
    ]
    assert "the traces of ranks 0,2 beside it are read" in " ".join(found.notes)


def test_a_merged_trace_beside_traces_without_ranks_is_left_out(tmp_path: Path) -> None:
    """There are as many of them as were merged."""
    write_merged_kineto(tiny_run(ranks=2), tmp_path)
    write_kineto(tiny_run(ranks=2), tmp_path, distributed=False)
    found = discover(tmp_path)
    assert all(source.identity.part == "" for source in found.sources)
    assert len(found.sources) == 2


def test_a_part_can_be_given_its_rank(tmp_path: Path) -> None:
    """By its label; a note says which ranks the others are."""
    merged = write_merged_kineto(tiny_run(ranks=2), tmp_path)[0].parent
    assert ranks_of(tmp_path, {f"{merged.name}/TP00": 8}) == [1, 8]


def test_a_conflict_of_parts_names_them(tmp_path: Path) -> None:
    """Not the file twice, which both are of."""
    merged = write_merged_kineto(tiny_run(ranks=2), tmp_path)[0].parent
    given = {f"{merged.name}/TP01": 0}
    found = discover(tmp_path, given, finding=FindingOptions(lists_all=True))
    assert [str(one.path) for one in found.unclear] == [f"{merged}/TP00", f"{merged}/TP01"]
    assert f"as {merged}/TP01 is" in found.unclear[0].problem
    with pytest.raises(RankIdentityError, match=f"--assign-rank {re.escape(merged.name)}/TP01=1"):
        discover(tmp_path, given)


def test_a_long_label_is_cut(traces: list[Path], tmp_path: Path) -> None:
    """A list of ranks stays one that a terminal shows."""
    labels = [f"TP0{number}{'x' * 5_000}" for number in range(3)]
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(label(labels)(documents(traces))), encoding="utf-8")
    found = discover(path)
    assert [source.identity.part[:4] for source in found.sources] == ["TP00", "TP01", "TP02"]
    assert all(len(source.identity.part) < 100 for source in found.sources)
    assert all(len(note) < 1_000 for note in found.notes)


def of_one_process(traces: Documents, **info: int) -> dict[str, Any]:
    """The trace of one process that drives the devices of several ranks, calls in threads apart."""
    events = []
    for number, trace in enumerate(traces):
        (host,) = {one["pid"] for one in trace["traceEvents"] if one.get("cat") == "cuda_runtime"}
        for event in trace["traceEvents"]:
            made, args = dict(event), dict(event.get("args", {}))
            if made["pid"] == host:
                made["pid"] = 4_000
            if "id" in made:
                made["id"] += 1_000_000 * number
            for key in {"correlation", "External id"} & args.keys():
                args[key] += 1_000_000 * number
            events.append(made | {"args": args})
    made = traces[0] | {"traceEvents": events}
    made["distributedInfo"] = {"backend": "nccl", **info}
    return made


@pytest.mark.parametrize(
    ("info", "ranks"),
    [({}, [0, 1, 2]), ({"rank": 0, "world_size": 1}, [0, 1, 2]), ({"rank": 4}, [4, 5, 6])],
)
def test_devices_of_one_process_are_ranks(
    traces: list[Path], tmp_path: Path, info: dict[str, int], ranks: list[int]
) -> None:
    """Each has its own kernels and memory; an arrow to the device of another lacks no end."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(of_one_process(documents(traces), **info)), encoding="utf-8")
    sources = discover(path).sources
    assert [source.identity.rank for source in sources] == ranks
    halves = list[tuple[int, int]]()
    for source, trace in zip(sources, traces, strict=True):
        (alone,) = discover(trace).sources
        mine, theirs = read(source), read(alone)
        assert mine.tasks.start_ns.tolist() == theirs.tasks.start_ns.tolist()
        assert mine.tasks.launch_ns.tolist() == theirs.tasks.launch_ns.tolist()
        assert overlap_ns(mine) == overlap_ns(theirs)
        assert sorted(mine.samples.time_ns.tolist()) == sorted(theirs.samples.time_ns.tolist())
        assert not mine.warnings
        halves.append((half_arrows(mine), half_arrows(theirs)))
    assert {mine for mine, _ in halves} == {sum(theirs for _, theirs in halves)}


def test_a_stray_kernel_on_another_device_is_no_rank(traces: list[Path], tmp_path: Path) -> None:
    """A process of a distributed run may touch the device of another one, which is remarked."""
    trace = documents(traces)[1]
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    stray = kernels[0] | {"pid": 0, "args": kernels[0]["args"] | {"device": 0}}
    trace["traceEvents"].append(stray)
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(trace), encoding="utf-8")
    (source,) = discover(path).sources
    assert source.identity.rank == 1
    assert "its process used devices 0,1" in " ".join(read(source).warnings)


@pytest.mark.parametrize("small", [True, False], ids=["one block", "many blocks"])
def test_another_trace_in_the_same_file_is_not_read(
    traces: list[Path], tmp_path: Path, small: bool
) -> None:
    """The first one is read alone, and a warning says from where on there is another."""
    first, second = (json.dumps(trace) for trace in documents(traces)[:2])
    if not small:
        filler = json.dumps(EVENT) + ", "
        first = first.replace('"traceEvents": [', '"traceEvents": [' + filler * 20_000)
    path = tmp_path / "trace.json"
    path.write_text(f"{first}\n{second}", encoding="utf-8")
    alone = tmp_path / "alone.json"
    alone.write_text(first, encoding="utf-8")
    mine, theirs = (read(discover(one).sources[0]) for one in (path, alone))
    assert mine.tasks.start_ns.tolist() == theirs.tasks.start_ns.tolist()
    assert [str(one) for one in mine.warnings if "another trace" in one] == [
        f"rank 0: trace.json holds another trace behind the first, from byte {len(first)} on, "
        "which is not read. Put it into a file of its own."
    ]
    assert len(mine.omissions) == len(theirs.omissions) + 1


EVENT = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 12340, "tid": 9, "ts": 1, "dur": 1}


def test_ranks_that_nobody_has_are_no_ranks(traces: list[Path], tmp_path: Path) -> None:
    """Writers put -1 where there is none, which then splits nothing."""
    events = [
        event | {"args": event.get("args", {}) | {"rank": -1 - number}}
        for number, trace in enumerate(documents(traces))
        for event in trace["traceEvents"]
    ]
    path = tmp_path / "merged.json"
    path.write_text(json.dumps(documents(traces)[0] | {"traceEvents": events}))
    assert all(rank >= 0 for rank in ranks_of(path))


def of_msmonitor(device: int, number: int) -> list[Event]:
    """A kernel of 500 us, more on later devices, and a collective, as msMonitor exports them."""
    at, length = number * 1000 + 10.0, 500.0 + 100 * device
    pid = 1_000_000 + 6 * device
    own: Event = {"ph": "X", "pid": pid}
    args = {"deviceId": device, "streamId": 2, "correlationId": 10 + number}
    group = {"deviceId": device, "streamId": 7, "commName": "hcom_0", "correlationId": 90}
    call = {"ph": "X", "cat": "AclAPI", "name": "aclnnMatmul", "pid": 777, "tid": 778}
    span = {"name": "Computing", "cat": "Overlap", "tid": 0, "ts": at, "dur": length}
    return [
        call | {"ts": at - 8, "dur": 4.0, "args": {"correlationId": 10 + number}},
        own | {"name": "MatMul", "cat": "Kernel", "tid": 2, "ts": at, "dur": length, "args": args},
        own
        | {"name": "hcom_allReduce_", "cat": "Communication", "tid": 7, "args": group}
        | {"ts": at + length + 5, "dur": 50.0},
        own | span | {"pid": pid + 5, "args": {"deviceId": device}},
    ]


@pytest.mark.parametrize("devices", [(3,), (0, 1)])
def test_traces_of_msmonitor(tmp_path: Path, devices: Sequence[int]) -> None:
    """Their zero is at the end of the file, and each device is a rank with launches and ops."""
    events = [
        one for number in range(6) for device in devices for one in of_msmonitor(device, number)
    ]
    document = {"traceEvents": events, "metadata": {"pid": 777, "traceStartNs": 10**18}}
    (tmp_path / "trace.json").write_text(json.dumps(document), encoding="utf-8")
    sources = discover(tmp_path).sources
    assert [source.identity.rank for source in sources] == list(range(len(devices)))
    for device, source in zip(devices, sources, strict=True):
        records = read(source)
        computing = records.tasks.take(records.tasks.compute)
        lengths_ns = computing.end_ns - computing.start_ns
        assert lengths_ns.tolist() == [500_000 + 100_000 * device] * 6
        assert computing.start_ns[0] == 10**18 + 10_000
        assert (computing.launch_ns == computing.start_ns - 8_000).all()
        assert (records.ops.end_ns - records.ops.start_ns).tolist() == [50_000] * 6
        assert not records.warnings
