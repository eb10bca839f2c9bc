"""Proves that files of other programs are called what they are, alone and in a directory."""

from __future__ import annotations

import gzip
import json
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.profile_shelf import Copier, ProfileShelf
from timeline.cli.main import main
from timeline.errors import NoProfileError
from timeline.sources.finding.discovery import discover


def trace(*events: dict[str, Any], **more: Any) -> bytes:
    return json.dumps(
        {"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, **one} for one in events]} | more
    ).encode()


def database(*tables: str) -> Callable[[Path], object]:
    def write(path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            for table in tables:
                connection.execute(f"CREATE TABLE {table} (id INTEGER)")

    return write


PLANES = b"\n\xc8\x03\x08\x01\x12\x0e/host:metadata\x2a\x05"
JAX = trace({"ph": "M", "name": "process_name", "args": {"name": "/device:TPU:0"}})
KINDS = {
    ("any.nsys-rep", b"\x1f\x8b\x08\0\0"): "report of Nsight Systems",
    ("old.qdrep", b"any"): "report of Nsight Systems",
    ("any.sqlite", database("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL")): "Nsight Systems",
    ("any.db", database("rocpd_string_0f", "kernels")): "rocpd",
    ("any_results.json", b'{"rocprofiler-sdk-tool": [{}]}'): "rocprofv3",
    ("any.json", trace({"name": "k", "args": {"BeginNs": "1"}})): "rocprof",
    ("kernel_trace.csv", b'"Kind","Agent_Id","Queue_Id"\n'): "rocprofv3",
    ("any.hatchet", b'[{"children":[],"frame":{"name":"ROOT"},"metrics":{}}]'): "Proton",
    ("any.pickle", pickle.dumps({"segments": [], "device_traces": []})): "memory snapshot",
    ("any.pkl", pickle.dumps({"segments": []}, protocol=2)): "memory snapshot",
    ("ms_service_host-1.db", database("Mstx", "Meta")): "msServiceProfiler",
    ("viz.json", trace({"name": "f", "cat": "FEE"})): "VizTracer",
    ("npu.json", trace({"name": "mm", "pid": "NPU functions"})): "autograd.profiler",
    ("gpu.json", trace({"name": "mm", "pid": "CPU functions"})): "autograd.profiler",
    ("any.trace.json.gz", gzip.compress(JAX)): "XProf",
    ("host.xplane.pb", PLANES): "XProf",
    ("host.pb", PLANES): "XProf",
    ("visualize_data.bin", b"any"): "msprof op",
    ("other.pftrace", b"\n\x04\x08\x01\x10\x02"): "Perfetto trace of another program",
}


@pytest.mark.parametrize(("file", "said"), KINDS.items(), ids=[name for name, _ in KINDS])
def test_a_file_of_another_program_is_named(
    tmp_path: Path, file: tuple[str, bytes | Callable[[Path], object]], said: str
) -> None:
    """As PATH and alone in a directory, with what to do; a profile beside it is read."""
    name, content = file
    path = tmp_path / "inside" / name
    path.parent.mkdir()
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    for where in (path, tmp_path):
        with pytest.raises(NoProfileError) as caught:
            discover(where)
        lines = caught.value.lines()
        assert said in lines[0]
        assert any("pass " in line.lower() for line in lines)


@pytest.mark.parametrize("name", ["out.pftrace", "out.pftrace.gz", "out.json"])
@pytest.mark.parametrize("compares", [False, True])
def test_what_tlexport_wrote_is_a_timeline(
    shelf: ProfileShelf,
    tmp_path: Path,
    name: str,
    compares: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A timeline or a comparison, under whatever name; the command that prints it works.

    Without a browser and a terminal, as in a script, it is not opened.
    """
    for name_of_screen in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name_of_screen, raising=False)
    path = shelf.get("kineto").path
    words = ["compare", str(path), str(path)] if compares else [str(path)]
    assert main([*words, "-o", str(tmp_path / name), "-q"]) == 0
    capsys.readouterr()
    assert main([str(tmp_path / name)]) == 1
    said = capsys.readouterr().err
    assert "is a timeline that tlexport wrote" in said
    assert f"tlexport show {tmp_path / name}" in said
    assert main([str(tmp_path)]) == 1
    assert f"tlexport show {tmp_path / name}" in capsys.readouterr().err


def test_beside_a_profile_a_note_names_it(copied: Copier) -> None:
    """A trace that looks like one of PyTorch is not passed over as one of another program."""
    profile = copied("kineto")
    (profile.path / "viz.json").write_bytes(trace({"name": "f", "cat": "FEE"}))
    (note,) = discover(profile.path).notes
    assert "viz.json was not read: it is a trace of VizTracer" in note
