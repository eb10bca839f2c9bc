"""Proves that profiles on other file systems are read as local ones, and no more than is needed."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import timeline
from tests.support.places import ROOT
from tests.support.profile_shelf import ProfileShelf
from tests.support.remote_places import (
    BUCKET,
    Connection,
    connection_to,
    s3_server,
    use_s3,
    web_server,
)
from tests.support.run_command import Command
from timeline.errors import SourceError, UsageError, install_command

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")

LAYOUTS = (
    "torch-text",
    "torch-db",
    "mindspore-2.1",
    "mindstudio",
    "mindformers",
    "raw",
    "msprof-sqlite",
    "op-summary",
    "kineto",
    "mindspore-text",
    "mindspore-raw",
    "mindspore-tables",
    "mindspore-display",
)
"""One for each way in which files are found and opened."""
PADDING_BYTES = 2_000_000
RANKS = 6


def verdict_of(report: dict[str, Any]) -> dict[str, Any]:
    """The verdict without commands, which name the place."""
    findings = [one | {"command": ""} for one in report["verdict"]["findings"]]
    return {**report["verdict"], "findings": findings}


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory for temporary files, which are gone after each test."""
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setenv("TMPDIR", str(directory))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield directory
    assert list(directory.iterdir()) == []


def in_memory(path: Path) -> str:
    """The URL of a copy of a directory."""
    memory = fsspec.filesystem("memory")
    if not memory.exists(f"/{path.name}"):
        memory.put(str(path), f"/{path.name}", recursive=True)
    return f"memory://{path.name}"


def said_of(path: str, directory: Path) -> str:
    """What the command says of a profile, of its ranks and in detail, whatever it is called."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", timeline.TimelineWarning)
        report = timeline.export(path, directory / "t.pftrace", kind="detail", force=True)
        with timeline.open_profile(path) as profile:
            captures = [list(map(str, row)) for row in profile.captures]
            notes = profile.notes
    text = json.dumps([report.to_dict(), captures, notes]).replace(path, "PATH")
    return re.sub(r'"(?:size_bytes|bytes|replaced)": \w+', "", text)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_profile_elsewhere_says_the_same(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """Its ranks, figures, warnings and what lies unused beside it."""
    path = shelf.get(layout).path
    assert said_of(in_memory(path), tmp_path) == said_of(str(path), tmp_path)


def test_what_is_packed_elsewhere_is_unpacked(shelf: ProfileShelf, tmp_path: Path) -> None:
    """Archives, and databases that are compressed alone; people see where they are packed."""
    path = shelf.get("torch-db").path
    shutil.make_archive(str(tmp_path / "packed" / "run"), "zip", path)
    packed = shelf.copy("torch-db", tmp_path / "gz").path
    for database in [*packed.rglob("ascend_*.db")]:
        database.with_name(f"{database.name}.gz").write_bytes(gzip.compress(database.read_bytes()))
        database.unlink()
    plain = timeline.find_verdict(path).sentences
    for url in (in_memory(tmp_path / "packed"), in_memory(packed)):
        with timeline.open_profile(url) as profile:
            assert timeline.find_verdict(profile).sentences == plain
            assert all(str(source).startswith(url) for *_, source in profile.captures)


def test_runs_are_compared_wherever_they_lie(command: Command, shelf: ProfileShelf) -> None:
    local, other = shelf.get("torch-db").path, shelf.get("torch-text").path
    url = in_memory(other)
    outcome = command("compare", local, url)
    assert outcome.code == 0, outcome.err
    assert (command.directory / f"compare-{local.name}-{other.name}-summary.pftrace").is_file()
    assert command("--verdict", url).code == 0
    assert command("--list", url, "--json").report["ranks"][0]["source"].startswith(url)


def test_what_is_not_there_is_told(command: Command, shelf: ProfileShelf) -> None:
    path = shelf.get("torch-db").path
    url = in_memory(path)
    outcome = command(f"{url}s")
    assert outcome.code == 1
    assert outcome.err.startswith(f"tlexport: {url}s: does not exist")
    outcome = command(f"{url}/nothing")
    assert (outcome.code, outcome.out) == (1, "")
    outcome = command("foo://bucket/run")
    assert outcome.code == 2
    assert "Protocol not known: foo" in outcome.err


@pytest.mark.parametrize("url", ["reference://me:secret@x", "filecache::reference://me:secret@x"])
def test_a_url_that_cannot_be_opened_is_said_without_its_password(
    command: Command, url: str
) -> None:
    """Be it chained, or of a file system that needs more arguments."""
    outcome = command(url)
    assert outcome.code in (1, 2)
    assert outcome.err.startswith("tlexport: ")
    assert "secret" not in outcome.err


@pytest.mark.parametrize("missing", ["fsspec", "s3fs"])
def test_a_package_that_is_not_installed_is_named(missing: str) -> None:
    script = f"""
import sys
sys.modules["{missing}"] = None
from timeline.cli.main import main
sys.exit(main(["s3://bucket/run"]))
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 2
    assert re.match("tlexport: s3://bucket/run needs a package", ended.stderr)
    assert install_command("fsspec", "s3fs") in ended.stderr


@pytest.mark.parametrize("pip", [True, False])
def test_a_package_is_installed_for_the_python_that_runs(
    pip: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From an environment that is not activated, and from one without pip."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name if pip else None)
    words = shlex.split(install_command("one", "two"))
    assert sys.executable in words
    assert (words[0] == "uv") is not pip
    assert words[-2:] == ["one", "two"]


# -- the web ---------------------------------------------------------------------------------------


def test_the_web_is_read_by_its_pages(command: Command, shelf: ProfileShelf) -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    path = shelf.get("torch-db").path
    with web_server(path.parent) as port:
        url = f"http://127.0.0.1:{port}/{path.name}/"
        elsewhere = command.report(url)
        here = command.report(path, "-o", "local.pftrace")
        assert verdict_of(elsewhere) == verdict_of(here)
        assert command("--list", url).code == 0
    assert (command.directory / f"timeline-{path.name}-summary-r0-1.pftrace").is_file()


def test_credentials_are_never_said(command: Command, shelf: ProfileShelf, tmp_path: Path) -> None:
    """Not in reports, files, next commands and errors, whatever fails."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    shutil.make_archive(str(tmp_path / "web" / "run"), "zip", shelf.get("torch-db").path)
    signature = "X-Amz-Signature=f00ba7"
    files = ("-o", "t.json", "--report", "t.html", "--force")
    said = list[str]()
    with web_server(tmp_path / "web", word="somebody:se%cret") as port:
        host = f"127.0.0.1:{port}"
        url = f"http://somebody:se%25cret@{host}/run.zip?{signature}"
        for options in ((*files, "--json"), (*files, "-v"), ("--list",)):
            outcome = command(url, *options)
            assert outcome.code == 0, outcome.err
            said += [outcome.out, outcome.err]
        for cause, url in {
            "permission denied": f"http://somebody:wr0ng-word@{host}/run.zip?{signature}",
            "does not exist": f"http://somebody:se%25cret@{host}/absent.zip?{signature}",
            "Connect": f"http://somebody:se%25cret@127.0.0.1:1/run.zip?{signature}",
        }.items():
            outcome = command(url)
            assert outcome.code == 1
            assert cause in outcome.err
            with pytest.raises(SourceError) as caught:
                timeline.open_profile(url)
            said += [outcome.err, *traceback.format_exception(caught.value)]
    said += [path.read_text(encoding="utf-8") for path in command.directory.iterdir()]
    told = re.sub(r"  File .*\n    .*\n", "", "".join(said))  # lines of this test
    assert told.count("/run.zip") > 4
    for secret in ("somebody", "se%cret", "se%25cret", "wr0ng", "f00ba7", "Signature"):
        assert secret not in told


# -- S3 --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[int]:
    pytest.importorskip("moto", reason="moto is not installed")
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    with s3_server() as port:
        yield port


@pytest.fixture
def connection(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    """The way to the server that s3:// URLs take."""
    with connection_to(server) as made:
        use_s3(made.port, monkeypatch)
        yield made


@pytest.fixture(scope="module")
def buckets(server: int, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of some ranks with much that no layer asks for, which also lie on the server."""
    root = tmp_path_factory.mktemp("buckets")
    for layout in ("torch-text", "torch-db"):
        profile = shelf.copy(layout, root / layout, ranks=RANKS)
        for capture in profile.captures:
            output = capture / "ASCEND_PROFILER_OUTPUT"
            for trace in output.glob("trace_view.json"):
                with trace.open("ab") as file:
                    file.write(b" " * PADDING_BYTES)
            for database in output.glob("ascend_*.db"):
                with closing(sqlite3.connect(database)) as held, held:
                    held.execute("CREATE TABLE OTHER AS SELECT zeroblob(?)", (PADDING_BYTES,))
        (output / "operator_details.csv").write_bytes(b"x" * 5 * PADDING_BYTES)
        (profile.captures[0] / "huge.bin").write_bytes(b"x" * 5 * PADDING_BYTES)
    with pytest.MonkeyPatch.context() as patch:
        system = use_s3(server, patch)
        system.mkdir(BUCKET)
        system.put(f"{root}/", f"{BUCKET}/", recursive=True)
    return root


def held_bytes(path: Path, rank: int) -> int:
    """The size of what is read of a rank."""
    (info,) = path.rglob(f"profiler_info_{rank}.json")
    output = info.parent / "ASCEND_PROFILER_OUTPUT"
    return sum(one.stat().st_size for one in output.iterdir() if one.stem != "operator_details")


@pytest.mark.parametrize("layout", ["torch-text", "torch-db"])
def test_only_what_the_chosen_ranks_need_is_fetched(
    command: Command, buckets: Path, connection: Connection, layout: str
) -> None:
    """Of the others a few blocks that tell who they are."""
    report = command.report(f"s3://{BUCKET}/{layout}", "--ranks", "0-1")
    assert {rank["rank"] for rank in report["ranks"]} == {0, 1}
    needed_bytes = sum(held_bytes(buckets / layout, rank) for rank in (0, 1))
    received_bytes = connection.received_bytes
    assert needed_bytes < received_bytes < needed_bytes + RANKS * 350_000
    local = command.report(buckets / layout, "--ranks", "0-1", "-o", "local.pftrace")
    assert verdict_of(report) == verdict_of(local)
    assert (command.directory / f"timeline-{layout}-summary-r0-1.pftrace").is_file()


def test_a_connection_that_breaks_fails_its_rank(
    command: Command, buckets: Path, connection: Connection
) -> None:
    """The error names the file, how far it came, and what to do; or the rank is left out."""
    (info,) = (buckets / "torch-text").rglob("profiler_info_1.json")
    connection.breaks[f"{info.parent.name}/ASCEND_PROFILER_OUTPUT/trace_view".encode()] = 500_000
    url = f"s3://{BUCKET}/torch-text"
    outcome = command(url, "--ranks", "0-2")
    assert (outcome.code, outcome.out) == (1, "")
    said = (
        rf"tlexport: {url}/{info.parent.name}/\S+/trace_view.json: cannot be read: "
        r"the connection ended after [\d.]+ [KM]B of 2\.\d MB"
    )
    assert re.match(said, outcome.err), outcome.err
    assert list(command.directory.iterdir()) == []
    report = command.report(url, "--ranks", "0-2", "--keep-going")
    assert [rank["rank"] for rank in report["ranks"]] == [0, 2]
    assert any(
        re.search("rank 1 is left out: .*connection ended", one) for one in report["warnings"]
    )


def test_a_companion_that_cannot_be_fetched_fails_its_rank(
    command: Command, buckets: Path, connection: Connection
) -> None:
    """Figures would otherwise depend on the network."""
    connection.breaks[b"kernel_details.csv"] = connection.breaks[b"step_trace_time.csv"] = 0
    connection.breaks[b"analysis.db"] = 0
    for layout in ("torch-text", "torch-db"):
        outcome = command(f"s3://{BUCKET}/{layout}", "--ranks", "0")
        assert outcome.code == 1, layout
        assert "the connection ended" in outcome.err


def test_a_connection_that_never_was_is_told(
    command: Command, server: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_s3(1, monkeypatch)
    outcome = command(f"s3://{BUCKET}/torch-db")
    assert outcome.code == 1
    assert re.match(f"tlexport: s3://{BUCKET}/torch-db: cannot be read: ", outcome.err)
    assert "Check the URL, the connection, and the credentials" in outcome.err
    assert "nobody" not in outcome.err


def test_ctrl_c_leaves_no_copy_behind(
    buckets: Path, connection: Connection, place: Path, tmp_path: Path
) -> None:
    """While a file is being fetched; `place` sees that nothing is left."""
    connection.stalls[b"trace_view.json"] = 500_000
    command = [sys.executable, "-m", "timeline", f"s3://{BUCKET}/torch-text", "--ranks", "0"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert connection.stalled.wait(200)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=100)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted; nothing was written" in said
    assert "Traceback" not in said


def test_copies_are_gone_with_the_profile(
    buckets: Path, connection: Connection, place: Path
) -> None:
    """They are kept as long as it is open: a second question fetches nothing."""
    with timeline.open_profile(f"s3://{BUCKET}/torch-db") as profile:
        profile.overlap(ranks=[0])
        received_bytes = connection.received_bytes
        profile.overlap(ranks=[0], steps=[1])
        assert connection.received_bytes == received_bytes
        assert list(place.rglob("*.db"))


def test_an_executor_that_is_no_cluster_is_told_as_ever(
    buckets: Path, connection: Connection
) -> None:
    with pytest.raises(UsageError, match="is not a Dask address"):
        timeline.export(f"s3://{BUCKET}/torch-db", executor="foo")
