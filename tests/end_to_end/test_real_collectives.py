"""Holds what is said of waiting on real GPU runs against plain sums over their own kernels."""

from __future__ import annotations

import json
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.support.places import DATA
from timeline.cli.main import main

FOUR_RANKS = DATA / "gpu-ranks" / "sst_long_a2a_optimizer_4.tar.gz"
TWO_RUNS = DATA / "gpu-ranks" / "sst_long_a2a_optimizer_2.tar.gz"
EIGHT_RANKS = DATA / "gpu" / "dlrm_kineto.tar.gz"
LAUNCHED_OPS = 27
"""Collectives that each of the four ranks launched while it recorded."""
TOLERANCE = 0.03
STAMP = 8
"""Digits of the time in the names of traces that those of one run have in common."""


@pytest.fixture
def captures(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The traces of a packed run, of the newest if several lie in it."""
    packed: Path = request.param
    if not packed.exists():
        pytest.skip(f"{packed.name} does not lie beside the checkout")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "run", filter="data")
    runs = defaultdict[str, list[Path]](list)
    for path in (tmp_path / "run").rglob("*.json"):
        runs[path.name.split(".")[-4][:STAMP] if packed == TWO_RUNS else ""].append(path)
    newest = max(runs)
    for name, paths in runs.items():
        for path in paths if name != newest else ():
            path.unlink()
    return tmp_path / "run"


def of_ranks(path: Path) -> dict[int, list[dict[str, Any]]]:
    """The communication kernels of each rank in order, and which were launched in the trace."""
    found = {}
    for trace in path.rglob("*.json"):
        document = json.loads(trace.read_bytes())
        events = [event for event in document["traceEvents"] if event.get("ph") == "X"]
        calls = {
            event["args"]["correlation"]
            for event in events
            if event.get("cat", "").lower() in ("cuda_runtime", "runtime")
        }
        kernels = [
            event
            for event in events
            if event.get("cat", "").lower() == "kernel" and event["name"].startswith("nccl")
        ]
        kernels.sort(key=lambda event: event["ts"])
        for kernel in kernels:
            kernel["launched"] = kernel["args"]["correlation"] in calls
        found[document["distributedInfo"]["rank"]] = kernels
    return found


def caused_ns(ranks: dict[int, list[dict[str, Any]]], *, last: int) -> dict[int, int]:
    """How long others waited for each rank, over so many collectives counted from the back."""
    caused = dict.fromkeys(ranks, 0)
    for place in range(1, last + 1):
        start = {rank: kernels[-place]["ts"] for rank, kernels in ranks.items()}
        latest = max(start, key=lambda rank: start[rank])
        caused[latest] += sum(start[latest] - one for one in start.values()) * 1000
    return caused


def report_of(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    assert main([str(path), "-o", str(tmp_path / "t.pftrace"), "--force", "--json", *more]) == 0
    return orjson.loads(capsys.readouterr().out)


@pytest.mark.parametrize("captures", [FOUR_RANKS, TWO_RUNS], indirect=True)
def test_the_late_rank_of_four_is_named(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By as much as its kernels came later than those of others, on the clock of their host."""
    ranks = of_ranks(captures)
    assert all(sum(k["launched"] for k in rank) == LAUNCHED_OPS for rank in ranks.values())
    launched = caused_ns(ranks, last=LAUNCHED_OPS)
    every = caused_ns(ranks, last=min(map(len, ranks.values())))
    report = report_of(captures, tmp_path, capsys)
    waiting = {row["rank"]: row for row in report["waiting"]}
    least, most = sorted((launched[2], every[2]))
    assert least * (1 - TOLERANCE) <= waiting[2]["caused_ns"] <= most * (1 + TOLERANCE)
    assert report["verdict"]["stragglers"][0]["rank"] == 2
    # What others wait for it is little beside what all hosts stand still: no rank is a finding.
    first = report["verdict"]["findings"][0]
    assert (first["ranks"], first["cause"]) == (None, "memory")
    assert first["evidence"]["call"] in ("cudaMalloc", "cudaFree")
    assert first["gain_share"] > 0.25
    assert all(row["alone"] == 0 for row in report["waiting"])
    assert report["verdict"]["waiting_basis"]["share"] > 0.95
    assert not any("selected" in line for line in report["warnings"])


@pytest.mark.parametrize("captures", [EIGHT_RANKS], indirect=True)
def test_all_to_alls_that_run_as_sends_name_the_late_rank(
    captures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of eight ranks the last to five of eight collectives; three AllReduces move no clock."""
    ranks = of_ranks(captures)
    truth = caused_ns(ranks, last=8)
    report = report_of(captures, tmp_path, capsys)
    waiting = {row["rank"]: row for row in report["waiting"]}
    assert waiting[7]["times_last"] == 5
    for rank, own_ns in truth.items():
        assert waiting[rank]["caused_ns"] == pytest.approx(own_ns, rel=TOLERANCE, abs=50_000)
    assert {rank["offset_ns"] for rank in report["ranks"]} == {0}
    kinds = {row["kind"]: row["count"] for row in report["collectives"] if row["rank"] == 7}
    assert kinds == {"AlltoAll": 5, "AllReduce": 3}


def generic_kernels() -> Iterator[Path]:
    """Real traces whose kernels do not say which collective they were."""
    path = DATA / "gpu" / "mi300" / "resnet_act_checkpoint.json.gz"
    if path.exists():
        yield path


def test_generic_kernels_are_what_announced_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """RCCL runs all collectives by one kernel, which is no kind of its own."""
    for path in generic_kernels():
        report = report_of(path, tmp_path, capsys)
        kinds = {row["kind"]: row["count"] for row in report["collectives"]}
        assert kinds == {"AllReduce": 6, "Broadcast": 6, "collective": 5}
        assert {row["group"] for row in report["collectives"]} == {"Group 0 default_pg"}
        assert all(row["size_bytes"] > 0 for row in report["collectives"] if row["count"] == 6)
        return
    pytest.skip("no such trace lies beside the checkout")
