"""Proves that compressed files of profiles read as the plain ones."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import Copier, Profile, ProfileShelf
from tests.support.run_command import exported
from timeline.cli.main import main
from timeline.errors import SourceError
from timeline.sources.ascend_trace.tables import ascend_format
from timeline.sources.common.losses import LossLog
from timeline.sources.decoders.json_events import read_events
from timeline.sources.decoders.trace_events import Complete
from timeline.sources.files.opened import (
    files_by_name,
    find_file,
    last_bytes,
    open_decompressed,
    open_profile_file,
    read_whole_file,
)
from timeline.sources.finding.discovery import discover

TEXT_LAYOUTS = ("torch-text", "mindspore-2.1", "mindstudio", "mindstudio-sliced", "mindformers")
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
MAGIC_KNOWN_BYTES = 10
"""From here on every format is recognised by what is left of it."""
packed_in_each_way = pytest.mark.parametrize("way", PACKERS)


def pack_files(directory: Path, *suffixes: str) -> list[Path]:
    """Compress every file of some suffixes, and leave only the compressed one."""
    made = []
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path.suffix in suffixes:
            packed = path.with_name(path.name + ".gz")
            packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
            path.unlink()
            made.append(packed)
    return made


# -- streams ---------------------------------------------------------------------------------------


@packed_in_each_way
@given(content=st.binary(max_size=300), times=st.sampled_from([0, 1, 5000]))
def test_reads_what_was_packed(
    tmp_path_factory: pytest.TempPathFactory, way: str, content: bytes, times: int
) -> None:
    """Content of any size comes back as it was, twice, whatever the name of its file says.

    Plain content begins like text: what begins like packed content is read as that.
    """
    content = b"{" + content if way == "plain" else content
    path = tmp_path_factory.getbasetemp() / f"{way}.json"
    content *= times
    path.write_bytes(PACKERS[way](content))
    for _ in range(2):
        with open_decompressed(path) as file:
            assert file.read() == content


@packed_in_each_way
def test_text_has_no_mark_and_its_own_line_ends(tmp_path: Path, way: str) -> None:
    """Text loses its byte-order mark, and nothing else."""
    path = tmp_path / "table.csv"
    path.write_bytes(PACKERS[way](b"\xef\xbb\xbfa,b\r\n1,\xff\n"))
    assert read_whole_file(path) == b"a,b\r\n1,\xff\n"


@pytest.mark.parametrize("way", ["gzip", "bzip2", "xz"])
def test_damage_is_an_error(tmp_path: Path, way: str) -> None:
    """A flipped bit anywhere after the beginning is told, or does no harm to the content."""
    content = b"timeline " * 20
    whole = PACKERS[way](content)
    path = tmp_path / "damaged.json"
    told = 0
    for at in range(MAGIC_KNOWN_BYTES, len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:
            with open_decompressed(path) as file:
                assert file.read() == content
        except SourceError as error:
            assert error.path == path
            told += 1
    assert told > len(whole) // 2


def test_a_plain_file_wins(tmp_path: Path) -> None:
    """Of a file and its compressed twin the plain one counts, and each name is there once."""
    for name in ("a.csv", "a.csv.gz", "b.json.gz"):
        (tmp_path / name).touch()
    assert find_file(tmp_path, "a.csv") == tmp_path / "a.csv"
    assert find_file(tmp_path, "b.json") == tmp_path / "b.json.gz"
    assert find_file(tmp_path, "c.json") is None
    assert files_by_name(tmp_path) == {
        "a.csv": tmp_path / "a.csv",
        "b.json": tmp_path / "b.json.gz",
    }


# -- profiles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", TEXT_LAYOUTS)
def test_packed_files_give_the_same_timeline(
    shelf: ProfileShelf, tmp_path: Path, layout: str
) -> None:
    """With every JSON and CSV file compressed, the timeline is the same to the byte."""
    plain = shelf.get(layout, ranks=1)
    packed = shelf.copy(layout, tmp_path / plain.path.name, ranks=1)
    assert pack_files(packed.path, ".json", ".csv")
    wanted = exported(plain.path, tmp_path / "plain.pftrace")
    assert exported(packed.path, tmp_path / "packed.pftrace") == wanted
    ((slices,),) = TraceProcessor.load(wanted).rows("SELECT COUNT(*) FROM slice")
    assert slices > 100


def test_everything_of_a_capture_may_be_packed(shelf: ProfileShelf, tmp_path: Path) -> None:
    """The files that tell rank and clock may be compressed with the rest, as by `gzip -r`."""
    plain = shelf.get("mindstudio")
    packed = shelf.copy("mindstudio", tmp_path / "run")
    for path in sorted(packed.path.rglob("*")):
        if path.is_file():
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    found, wanted = discover(packed.path).sources, discover(plain.path).sources
    assert [one.identity.rank for one in found] == [one.identity.rank for one in wanted]
    assert [one.clock for one in found] == [one.clock for one in wanted]


@pytest.mark.parametrize(
    ("layout", "file"),
    [
        ("torch-text", "trace_view.json.gz"),
        ("mindstudio", "msprof_2*.json.gz"),
        ("mindspore-2.1", "msprof_1_1_2.json.gz"),
    ],
)
def test_found_from_one_packed_file(copied: Copier, layout: str, file: str) -> None:
    """A compressed file of a capture stands for that capture."""
    profile = copied(layout)
    capture = profile.captures[1]
    pack_files(capture, ".json", ".csv")
    (path,) = sorted(capture.rglob(file))
    (source,) = discover(path).sources
    assert source.identity.directory.resolve() == capture.resolve()


@pytest.mark.parametrize("name", ["trace_view.json", "kernel_details.csv"])
def test_a_cut_file_is_told(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A compressed trace or table that ends early ends the run, with the file and the byte."""
    profile: Profile = shelf.copy("torch-text", tmp_path / "run")
    pack_files(profile.captures[0], ".json", ".csv")
    (path,) = profile.captures[0].rglob(name + ".gz")
    size = path.stat().st_size // 2
    os.truncate(path, size)
    assert main([str(profile.path), "-o", str(tmp_path / "out.pftrace")]) == 1
    assert f"{name}.gz, byte {size}: ends before" in capsys.readouterr().err
    assert not (tmp_path / "out.pftrace").exists()


@given(st.binary(max_size=300).filter(lambda data: data[:2] != b"\x1f\x8b"), st.integers(1, 400))
def test_the_end_of_a_file_is_that_of_its_content(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, count: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "file with an end"
    for written in (data, gzip.compress(data), gzip.compress(data[:9]) + gzip.compress(data[9:])):
        path.write_bytes(written)
        assert last_bytes(path, count) == data[-count:]


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        ("torch-text", "trace_view.json"),
        ("torch-text", "kernel_details.csv"),
        ("torch-db", "ascend_pytorch_profiler*.db"),
    ],
)
def test_what_git_holds_elsewhere_is_told(
    copied: Copier, capsys: pytest.CaptureFixture[str], layout: str, name: str
) -> None:
    """Its extension for large files leaves a pointer to each that it has not fetched."""
    profile = copied(layout, ranks=1)
    path = next(profile.path.rglob(name))
    path.write_bytes(
        b"version https://git-lfs.github.com/spec/v1\n"
        b"oid sha256:760b7f89de48e87cca2ef79508e042ac7408ca16d48eeddee11b7855177942b6\n"
        b"size 870601265\n"
    )
    assert main([str(path), "--verdict"]) == 1
    assert capsys.readouterr().err == (
        f"tlexport: {path}: is a pointer of Git LFS: its content, 830.3 MB, is not here. "
        "Run git lfs pull to fetch it, or leave its rank out with --keep-going.\n"
    )


def test_the_end_of_a_packed_file_takes_little_memory(tmp_path: Path) -> None:
    """A file that unpacks to 64 MB is never held whole."""
    path = tmp_path / "large.gz"
    with gzip.open(path, "wb", compresslevel=1) as packed:
        for _ in range(64):
            packed.write(bytes(1 << 20))
        packed.write(b"end")
    tracemalloc.start()
    assert last_bytes(path, 10) == bytes(7) + b"end"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_file_that_is_not_there_is_a_source_error(tmp_path: Path) -> None:
    with (
        pytest.raises(SourceError, match="No such file"),
        open_profile_file(tmp_path / "absent.json.gz"),
    ):
        pass


def test_a_packed_trace_that_was_cut_short_gives_its_first_events(tmp_path: Path) -> None:
    """What was unpacked before the break is read, and the break is told."""
    path = tmp_path / "trace.json.gz"
    events = [{"ph": "X", "name": f"op {number}", "ts": number} for number in range(20_000)]
    packed = gzip.compress(json.dumps(events).encode())
    path.write_bytes(packed[: len(packed) // 2])
    damage = LossLog(path)
    found = [
        event
        for block in read_events(ascend_format().decoder, path, 4096, damage)
        for event in block
    ]
    names = [event.name for event in found if isinstance(event, Complete)]
    assert names == [f"op {number}" for number in range(len(found))]
    assert 5_000 < len(found) < 15_000
    assert any("cannot be unpacked" in omission.reason for omission in damage.omissions(0))
