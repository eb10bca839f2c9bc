"""Proves with crafted archives that none writes elsewhere, grows without bound, or is half read."""

from __future__ import annotations

import functools
import gzip
import os
import re
import shutil
import stat
import struct
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from simulator.archives import tar_of, zip_of
from tests.support.examples import at_most
from tests.support.profile_shelf import tree_state
from timeline.cli.main import main
from timeline.errors import SourceError
from timeline.sources.files import archives
from timeline.sources.files.archives import UnpackLimit, limit_for, unpack, unpack_file
from timeline.sources.files.opened import archive_stem, is_archive, is_wanted

PLENTY_BYTES = 1 << 40
COMPRESSIONS = ("", "gz", "bz2", "xz")
Make = Callable[[Iterable[tuple[str, bytes]]], bytes]


def tar_file(name: str, content: bytes = b"{}") -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(name)
    header.size = len(content)
    return header, content


def tar_special(name: str, kind: bytes, target: str = "") -> tuple[tarfile.TarInfo, bytes]:
    header = tarfile.TarInfo(name)
    header.type, header.linkname = kind, target
    return header, b""


def zip_special(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = 3
    info.external_attr = (mode | 0o777) << 16
    return info


def tar_files(files: Iterable[tuple[str, bytes]], compression: str = "") -> bytes:
    return tar_of([tar_file(name, content) for name, content in files], compression)


def zip_files(files: Iterable[tuple[str, bytes]]) -> bytes:
    """Names as they are given, which zipfile would tidy."""
    made = []
    for name, content in files:
        info = zipfile.ZipInfo("x")
        info.filename = info.orig_filename = name
        info.compress_type = zipfile.ZIP_DEFLATED
        made.append((info, content))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that are there twice
        return zip_of(made)


MAKERS: dict[str, Make] = {
    "zip": zip_files,
    **{f"tar {way}".strip(): functools.partial(tar_files, compression=way) for way in COMPRESSIONS},
}
in_each_format = pytest.mark.parametrize("form", MAKERS)
in_zip_and_tar = pytest.mark.parametrize("form", ["zip", "tar"])


@pytest.fixture
def here(tmp_path: Path) -> Path:
    directory = tmp_path / "here"
    directory.mkdir()
    return directory


def unpacked(
    here: Path, content: bytes, *, most: int = PLENTY_BYTES, free: int = PLENTY_BYTES
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """The files that come out of an archive, and the notes; nothing may appear elsewhere."""
    archive, into = here / "a.tar", here / "into"
    archive.write_bytes(content)
    shutil.rmtree(into, ignore_errors=True)
    before = {name for name in tree_state(here.parent) if "into" not in name}
    try:
        notes = unpack(archive, into, UnpackLimit(archive, most, free, here), lambda *_: None)
    finally:
        after = {name for name in tree_state(here.parent) if "into" not in name}
        assert after == before
        assert not any(path.is_symlink() for path in into.rglob("*"))
    files = {
        path.relative_to(into).as_posix(): path.read_bytes()
        for path in into.rglob("*")
        if path.is_file()
    }
    return files, notes


def refused(here: Path, content: bytes, **limit: int) -> str:
    """What is said of an archive that is refused."""
    with pytest.raises(SourceError) as caught:
        unpacked(here, content, **limit)
    assert caught.value.path == here / "a.tar"
    return str(caught.value)


# -- what is unpacked ------------------------------------------------------------------------------


@in_each_format
def test_what_readers_want_is_unpacked(here: Path, form: str) -> None:
    """Files that a reader may want come out as they went in, and no others; directories do."""
    wanted = {
        "run/trace_view.json": os.urandom(1_200_000),
        "run/empty.csv": b"",
        "run/device_0/info.json.0": b"{}",
        "run/device_0/start_info.0": b"{}",
        "run/host/start_info": b"{}",
        "run/host/host_start.log": b"",
        "run/device_0/data/HWTS.data.0.slice_0": b"1",
        "run/a.db": b"1",
        "run/a.db-wal": b"1",
        "run/a.json.gz": b"1",
        "./run//./output_timeline_data_0.txt": b"1",
    }
    others = {"run/model.ckpt": b"1", "run/lib.so": b"1", "run/logs/a.bin": b"1", "README": b"1"}
    content = MAKERS[form]([*wanted.items(), *others.items()])
    files, notes = unpacked(here, content)
    assert files == {os.path.normpath(name): held for name, held in wanted.items()}
    assert notes == ()
    assert (here / "into" / "run" / "logs").is_dir()


def test_no_end_of_members(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many members as no run of any size has are refused."""
    monkeypatch.setattr(archives, "MOST_MEMBERS", 99)
    files = [(f"{number}.bin", b"") for number in range(100)]
    assert len(unpacked(here, tar_files(files[:99]))) == 2
    assert "holds more than 99 members" in refused(here, tar_files(files))


def test_directories_take_room(here: Path) -> None:
    """A small archive of nothing but directories makes no more of them than it could hold files."""
    room = 100 * archives.DIRECTORY_BYTES
    deep = [("/".join(f"{number}" for number in range(60)) + "/a.json", b"")]
    assert len(unpacked(here, tar_files(deep), most=room)[0]) == 1
    wide = [(f"{number}/skipped.bin", b"") for number in range(101)]
    assert "expands to more than" in refused(here, tar_files(wide), most=room)


def test_names_from_other_systems(here: Path) -> None:
    """Backslashes are separators; shadows that macOS adds to archives are left in them."""
    content = zip_files(
        [("run\\a.json", b"1"), ("__MACOSX/run/._a.json", b"2"), ("run/._b.json", b"3")]
    )
    assert unpacked(here, content) == ({"run/a.json": b"1"}, ())
    assert not (here / "into" / "__MACOSX").exists()


def test_a_tar_may_begin_like_a_zip(here: Path) -> None:
    """The first name of a tar is its first bytes."""
    assert unpacked(here, tar_files([("PK/a.json", b"1")])) == ({"PK/a.json": b"1"}, ())


def test_names_that_are_no_text(here: Path) -> None:
    """Bytes of a name that are not UTF-8 are replaced, so that it can be shown."""
    header = tar_file("run/\udcff.json")[0]
    files, _ = unpacked(here, tar_of([(header, b"{}")]))
    assert files == {"run/�.json": b"{}"}


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("a.zip", "a"),
        ("a.b.tar.gz", "a.b"),
        ("A.TGZ", "A"),
        ("a.tar", "a"),
        (".zip", "archive"),
        ("a.json.gz", None),
        ("zip", None),
    ],
)
def test_archives_are_known_by_their_names(name: str, stem: str | None) -> None:
    """The suffix says what an archive is, and what it is of."""
    assert is_archive(name) == (stem is not None)
    if stem is not None:
        assert archive_stem(name) == stem
        assert not is_wanted(name)


def test_progress_is_told(here: Path) -> None:
    """How far unpacking is grows up to the size of the archive."""
    archive = here / "a.zip"
    archive.write_bytes(zip_files([(f"{n}.json", os.urandom(10_000)) for n in range(20)]))
    told: list[tuple[str, int, int]] = []
    unpack(
        archive, here / "into", limit_for(archive, here), lambda *progress: told.append(progress)
    )
    assert {(stage, total) for stage, _, total in told} == {
        ("Unpacking a.zip", archive.stat().st_size)
    }
    done = [done for _, done, _ in told]
    assert done == sorted(done)
    assert 0.9 * archive.stat().st_size < done[-1] <= archive.stat().st_size


# -- names that are refused ------------------------------------------------------------------------


@in_zip_and_tar
@pytest.mark.parametrize(
    "name",
    [
        "/absolute.json",
        "//server/share.json",
        "../out.json",
        "run/../../out.json",
        "run/..",
        "..\\out.json",
        "C:\\out.json",
        "c:/out.json",
        "C:out.json",
        "\\out.json",
        "/unwanted.bin",
        "../unwanted.bin",
    ],
)
def test_nothing_is_written_elsewhere(here: Path, form: str, name: str) -> None:
    """Names that lead out of the directory end it, whatever the file is."""
    said = refused(here, MAKERS[form]([("good.json", b"1"), (name, b"2")]))
    assert f"member {name!r} would be written outside" in said


@in_zip_and_tar
def test_names_that_no_file_can_have(here: Path, form: str) -> None:
    """Names deeper than any profile, longer than any file's, or with control characters."""
    deep = "a/" * 500 + "b.json"
    assert "directories deep" in refused(here, MAKERS[form]([(deep, b"1")]))
    long = "a" * 300 + ".json"
    assert f"cannot be unpacked at member {long!r}: " in refused(here, MAKERS[form]([(long, b"1")]))


@pytest.mark.parametrize("name", ["a\nb.json", "\x1b[2Jb.json", "a\x7f.json"])
def test_control_characters(here: Path, name: str) -> None:
    """A name that could write into the terminal is refused, and shown as code."""
    for make in (zip_files, tar_files):
        said = refused(here, make([(name, b"1")]))
        assert f"member {name!r} has control characters" in said
        assert name not in said


@in_zip_and_tar
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("a/b.json", "a/b.json"),
        ("a/b.json", "./a//b.json"),
        ("a.json", "a.json/b.json"),
        ("a.json/b.json", "a.json"),
    ],
)
def test_a_place_is_taken_once(here: Path, form: str, first: str, second: str) -> None:
    """No file takes the place of another one."""
    said = refused(here, MAKERS[form]([(first, b"1"), (second, b"2")]))
    assert re.search(r"cannot be unpacked at member '[^']*a[^']*': File exists", said)


# -- links and devices -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE, b"Z"],
)
def test_tar_makes_files_only(here: Path, kind: bytes) -> None:
    """Links and devices are noted and not made, and nothing is written through them."""
    secret = here.parent / "secret.json"
    secret.write_text("mine")
    content = tar_of(
        [
            tar_special("run/link", kind, str(here.parent)),
            tar_special("run/a.json", kind, str(secret)),
            tar_file("run/link/secret.json", b"theirs"),
        ]
    )
    files, notes = unpacked(here, content)
    assert files == {"run/link/secret.json": b"theirs"}
    assert notes == ("a.tar: links and special files are not unpacked: 'run/link', 'run/a.json'.",)
    assert secret.read_text() == "mine"


@pytest.mark.parametrize("mode", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO])
def test_zip_makes_files_only(here: Path, mode: int) -> None:
    """The same for what zip calls a link or a device."""
    content = zip_of(
        [(zip_special("run/a.json", mode), b"/etc/passwd"), ("run/b.json", b"{}")],
    )
    files, notes = unpacked(here, content)
    assert files == {"run/b.json": b"{}"}
    assert notes == ("a.tar: links and special files are not unpacked: 'run/a.json'.",)


# -- bombs -----------------------------------------------------------------------------------------


@in_each_format
@pytest.mark.parametrize("limit", ["most", "free"])
def test_too_much_content(here: Path, form: str, limit: str) -> None:
    """What expands beyond a limit is refused at the member where it does, and is not written."""
    content = MAKERS[form]([("a.json", bytes(60_000)), ("b.json", bytes(2_000_000))])
    said = refused(here, content, **{limit: 100_000})
    assert "at member 'b.json'" in said
    assert ("expands to more than 97.7 KB" in said) == (limit == "most")
    assert (f"does not fit into {here}" in said) == (limit == "free")
    assert (here / "into" / "a.json").stat().st_size == 60_000
    assert not (here / "into" / "b.json").exists()


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_skipped_content_counts(here: Path, compression: str) -> None:
    """A tar has to be read through what nobody wants; that has an end too."""
    content = tar_files([("bomb.bin", bytes(5_000_000)), ("b.json", b"{}")], compression)
    assert "at member 'bomb.bin'" in refused(here, content, most=2_000_000)
    assert unpacked(here, content, free=2)[0] == {"b.json": b"{}"}


def lying_zip(size: int) -> bytes:
    """A zip whose lists say that its only member has another size."""
    content = bytearray(zip_files([("a.json", bytes(300_000))]))
    at = content.rindex(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<I", size)
    return bytes(content)


def test_a_zip_that_says_too_little(here: Path) -> None:
    """A member that grows beyond what it says is damaged, and what it says is the end of it."""
    assert "member 'a.json' cannot be read to its end" in refused(here, lying_zip(1000))
    assert (here / "into" / "a.json").stat().st_size <= 1000


def test_limits_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the command, more than 1 GB of a small archive is refused before a byte is made."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    header = tar_file("run/ASCEND_PROFILER_OUTPUT/trace_view.json")[0]
    header.size = (1 << 30) + 1
    for name, content in (
        ("a.zip", lying_zip((1 << 30) + 1)),
        ("a.tar", header.tobuf() + bytes(1024)),
    ):
        (tmp_path / name).write_bytes(content)
        assert main([str(tmp_path / name)]) == 1
        assert f"{tmp_path / name}: expands to more than 1.00 GB at" in capsys.readouterr().err
        assert list(temporary.iterdir()) == []


def test_limits_grow_with_the_archive(here: Path) -> None:
    """200 times the archive, and some room is left on the file system."""
    archive = here / "a.tar"
    with archive.open("wb") as file:
        file.truncate(10 << 20)
    limit = limit_for(archive, here)
    assert limit.most_bytes == 2000 << 20
    file_system = os.statvfs(here)
    assert limit.free_bytes < file_system.f_bavail * file_system.f_frsize


def test_headers_are_bounded(here: Path) -> None:
    """A name of gigabytes is not read into memory."""
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 1 << 33
    assert "a header says that it is 8589934592 bytes long" in refused(
        here, header.tobuf(tarfile.GNU_FORMAT) + bytes(2048)
    )


def test_a_compressed_file_has_the_same_limits(here: Path) -> None:
    """A file that is compressed alone is no way around them, and none is written beyond them."""
    packed, there = here / "run.db.gz", here / "into" / "run.db"
    packed.write_bytes(gzip.compress(bytes(3_000_000)))
    for most, free in ((100_000, 1 << 40), (1 << 40, 100_000)):
        with pytest.raises(SourceError, match=r"run\.db\.gz: .* at member 'run\.db'"):
            unpack_file(packed, there, UnpackLimit(packed, most, free, here), lambda *_: None)
        assert there.stat().st_size <= 100_000
        shutil.rmtree(there.parent)
    unpack_file(packed, there, limit_for(packed, here), lambda *_: None)
    assert there.stat().st_size == 3_000_000


# -- what cannot be read ---------------------------------------------------------------------------


def test_encrypted(here: Path) -> None:
    """An encrypted member that is wanted is an error; another one is nobody's concern."""
    content = bytearray(zip_files([("a.json", b"{}"), ("b.bin", b"{}")]))

    def encrypt(member: int) -> None:
        local = [found.start() for found in re.finditer(b"PK\x03\x04", content)][member]
        central = [found.start() for found in re.finditer(b"PK\x01\x02", content)][member]
        content[local + 6] |= 1
        content[central + 8] |= 1

    encrypt(1)
    assert unpacked(here, bytes(content)) == ({"a.json": b"{}"}, ())
    encrypt(0)
    assert "member 'a.json' is encrypted." in refused(here, bytes(content))


def test_a_member_without_a_name(here: Path) -> None:
    """Such a member of a zip is damaged: its name begins with a zero."""
    content = zip_files([("a.json", b"{}")]).replace(b"a.json", b"\0.json")
    assert "a member has no name" in refused(here, content)


def test_an_unknown_method(here: Path) -> None:
    """A member that is packed in a way that Python does not know is named."""
    content = bytearray(zip_files([("a.json", b"{}")]))
    at = content.rindex(b"PK\x01\x02")
    content[at + 10 : at + 12] = struct.pack("<H", 9)
    assert "member 'a.json' is packed by method 9 of zip" in refused(here, bytes(content))


@in_each_format
def test_every_cut_is_told_with_its_byte(here: Path, form: str) -> None:
    """An archive that ends anywhere before its end is an error that names that byte."""
    whole = MAKERS[form]([("a.json", os.urandom(600)), ("b.bin", os.urandom(700))])
    # A tar ends with a block of zeros, and is filled up with more of them.
    end = 512 * 6 if form == "tar" else len(whole)
    step = 37 if form == "tar" else 7
    for size in (*range(16, end, step), end - 1):
        with pytest.raises(SourceError) as caught:
            unpacked(here, whole[:size])
        assert caught.value.offset == size, str(caught.value)


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tgz", "a.tar"])
@pytest.mark.parametrize("content", [b"", b"no archive", bytes(100), b"\x1f\x8b", b"PK\x03\x04"])
def test_no_archive(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes
) -> None:
    """A file that is called an archive and is none is an error with its name."""
    (tmp_path / name).write_bytes(content)
    assert main([str(tmp_path / name)]) == 1
    assert str(tmp_path / name) in capsys.readouterr().err


@in_each_format
@settings(max_examples=at_most(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 255)), max_size=6))
@example(changes=[(0, 0)])
def test_any_damage_is_told_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, form: str, changes: list[tuple[int, int]]
) -> None:
    """Whatever becomes of the bytes, there is an archive, or one error of it, and no other file."""
    content = bytearray(MAKERS[form]([("a/b.json", b"{}" * 300), ("a/c.csv", b"1,2\n")]))
    for at, value in changes:
        content[at % len(content)] = value
    here = tmp_path_factory.mktemp("damaged") / "here"
    here.mkdir()
    try:
        unpacked(here, bytes(content), most=1 << 20)
    except SourceError as error:
        assert error.path == here / "a.tar"
