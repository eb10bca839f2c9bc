"""Proves that what is built of the project runs without the project, and holds what it should."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from pages import LINK, SITE, CustomMetadataHook, collect, on_host, with_links

from tests.support.places import ROOT
from tests.support.profile_shelf import ProfileShelf
from timeline.analysis.gains.replay import is_compiled as has_replay
from timeline.columns.nesting import is_compiled as has_nesting
from timeline.encoders.protobuf_rows import is_compiled as has_wire
from timeline.sources.decoders.json_events import Scanner
from timeline.sources.decoders.sqlite import is_compiled as has_rows
from timeline.version import __version__

PACKAGE = ROOT / "timeline"
COMPILED = (".so", ".pyd")
C_SOURCES = frozenset(
    f"timeline/{name}"
    for name in (
        "_build.py",
        "analysis/gains/_replay.c",
        "columns/_columns.h",
        "columns/_nesting.c",
        "encoders/_wire.c",
        "sources/decoders/_rows.c",
        "sources/decoders/_scanner.c",
    )
)
"""What wheels hold only compiled, and what compiles it."""
SHIPPED = ("timeline", "proto", "tests", "examples")
"""The directories that a source distribution holds whole."""


@dataclass(frozen=True)
class Built:
    """The two distributions of the project."""

    sdist: Path
    wheel: Path

    def wheel_names(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as opened:
            return set(opened.namelist())

    def sdist_names(self) -> set[str]:
        """The files below the directory that holds all of them."""
        with tarfile.open(self.sdist) as opened:
            return {name.partition("/")[2] for name in opened.getnames()}

    def metadata(self) -> Message:
        with zipfile.ZipFile(self.wheel) as opened:
            name = f"ascend_timeline-{__version__}.dist-info/METADATA"
            return BytesParser().parsebytes(opened.read(name))


@dataclass(frozen=True)
class Installed:
    """An environment of its own, in which the wheel is installed."""

    scripts: Path

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment, which sees nothing of the project."""
        program, *rest = arguments
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        return subprocess.run(
            [str(self.scripts / program), *rest],
            cwd=cwd,
            env=environment,
            capture_output=True,
            encoding="utf-8",
        )


def run_python(*arguments: str, environment: Mapping[str, str] | None = None) -> None:
    ran = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | dict(environment or {}),
        capture_output=True,
        encoding="utf-8",
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """A source distribution of the project, and a wheel made of nothing else."""
    target = tmp_path_factory.mktemp("dist")
    run_python("-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT))
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return Built(sdist, wheel)


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """What the wheel needs is taken from the environment of the tests: nothing is downloaded."""
    root = tmp_path_factory.mktemp("environment")
    run_python("-m", "venv", "--without-pip", str(root))
    places = {"base": str(root), "platbase": str(root)}
    scheme = "venv" if "venv" in sysconfig.get_scheme_names() else sysconfig.get_default_scheme()
    scripts, packages = (
        Path(sysconfig.get_path(name, scheme, places)) for name in ("scripts", "purelib")
    )
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "lent.pth").write_text("\n".join(sorted(lent)) + "\n", encoding="utf-8")
    offline = ("--quiet", "--no-index", "--no-deps", "--ignore-installed")
    run_python("-m", "pip", "--python", str(root), "install", *offline, str(built.wheel))
    return Installed(scripts)


def files_below(*directories: str) -> set[str]:
    """The files of the project there, as names in an archive; nothing that running it left."""
    return {
        path.relative_to(ROOT).as_posix()
        for directory in directories
        for path in (ROOT / directory).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix not in COMPILED
    }


def test_the_wheel_holds_the_package_and_nothing_else(built: Built) -> None:
    """Templates of the page and the mark of its types included; C only compiled."""
    names = {name for name in built.wheel_names() if ".dist-info/" not in name}
    compiled = {name for name in names if name.endswith(COMPILED)}
    assert names - compiled == files_below("timeline") - C_SOURCES
    assert len(compiled) == sum(
        (
            has_nesting(),
            has_replay(),
            has_wire(),
            Scanner is not None,
            has_rows(),
        )
    )
    assert ("-abi3-" in built.wheel.name) == bool(compiled)
    assert {
        "timeline/py.typed",
        "timeline/reports/html/page.html",
        "timeline/viewer/queries.sql",
    } <= names


def test_the_source_distribution_can_be_tested_and_built(built: Built) -> None:
    """Tests, examples and the schema are in it, and what its own README and metadata name."""
    names = built.sdist_names()
    assert files_below(*SHIPPED) <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not {name for name in names if name.startswith((".ci", ".venv"))}


def test_without_a_compiler_the_wheel_is_for_every_machine(tmp_path: Path) -> None:
    """All of the package is in it but for what is compiled."""
    fails = shutil.which("false")
    command = ("-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    run_python(*command, environment={"CC": fails or ""})
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        names = {name for name in opened.namelist() if ".dist-info/" not in name}
    assert wheel.name.endswith("-py3-none-any.whl")
    assert names == files_below("timeline") - C_SOURCES


@pytest.mark.skipif(Scanner is None, reason="there was no compiler")
def test_without_the_header_of_sqlite_only_what_needs_it_is_left_out(tmp_path: Path) -> None:
    """A compiler is on most machines, that header on fewer."""
    (tmp_path / "sqlite3ext.h").write_text("#error there is no such header\n", encoding="utf-8")
    command = ("-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT))
    run_python(*command, environment={"CFLAGS": f"-I{tmp_path}"})
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        compiled = {name for name in opened.namelist() if name.endswith(COMPILED)}
    names = {Path(name).name.partition(".")[0] for name in compiled}
    assert names == {"_nesting", "_replay", "_scanner", "_wire"}


def test_metadata_says_what_the_package_says(built: Built) -> None:
    """The version, the licence and the README, which is all that an index shows."""
    metadata = built.metadata()
    assert (metadata["Name"], metadata["Version"]) == ("ascend-timeline", __version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    payload = metadata.get_payload(decode=True)
    assert isinstance(payload, bytes)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert payload.decode("utf-8").strip() == with_links(readme, "README.md", on_host).strip()
    assert LINK.search(readme)
    assert LINK.search(payload.decode("utf-8")) is None, "an index has no other files"


def test_pages_elsewhere_link_to_the_host_of_the_repository(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a workflow states it; else only words stay, so that no link is broken."""
    text = "![seen](a.png) and [more](../b.md#part), [here](#top), [there](https://ui.perfetto.dev)"
    kept = "[here](#top), [there](https://ui.perfetto.dev)"
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert with_links(text, "docs/c.md", on_host) == f" and more, {kept}"
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://host.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "who/what")
    monkeypatch.setenv("GITHUB_REF_NAME", "v1")
    there = "https://host.example/who/what"
    assert with_links(text, "docs/c.md", on_host) == (
        f"![seen]({there}/raw/v1/docs/a.png) and [more]({there}/blob/v1/b.md#part), {kept}"
    )
    metadata: dict[str, Any] = {}
    CustomMetadataHook(str(ROOT), {}).update(metadata)
    assert set(metadata) == {"readme", "urls"}
    assert {url.startswith(there) for url in metadata["urls"].values()} == {True}


def test_the_documentation_is_a_site_without_broken_links(tmp_path: Path) -> None:
    """Built of the same pages as somebody who publishes it does; a link into nothing stops it."""
    collect(ROOT, tmp_path / "pages")
    build = ("-m", "zensical", "build", "--strict", "-f", str(tmp_path / "mkdocs.yml"))
    run_python(*build)
    pages = {path.name for path in (tmp_path / "site").glob("*.html")} - {"404.html"}
    docs = {path.name for path in (ROOT / ".github" / "docs").glob("*.md")}
    wanted = {name.removesuffix(".md") for name in {*SITE.values(), *docs}}
    assert pages == {f"{name}.html" for name in wanted}
    named = re.findall(r": (\w+)\.md$", (tmp_path / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted(wanted), "the navigation has each page once"
    with (tmp_path / "pages" / "limits.md").open("a", encoding="utf-8") as page:
        page.write("\n[nowhere](nothing.md)\n")
    with pytest.raises(AssertionError, match=r"page does not exist"):
        run_python(*build)


def third_party_imports() -> set[str]:
    """The names of all modules that the package imports and neither it nor Python brings.

    Type checkers bring typing_extensions and _typeshed, which nothing but them imports.
    """
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add((node.module or "").partition(".")[0])
    return found - set(sys.stdlib_module_names) - {"timeline", "typing_extensions", "_typeshed"}


def test_every_import_is_a_dependency(built: Built) -> None:
    """Whoever installs the wheel, with the extras that it offers, has all that it imports."""

    def spelled(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    required = built.metadata().get_all("Requires-Dist", [])
    offered = {
        spelled(re.split(r"[<>=!~;\[ ]", line, maxsplit=1)[0])
        for line in required
        if 'extra == "test"' not in line and 'extra == "fuzz"' not in line
    }
    brought_by = packages_distributions()
    missing = {
        name
        for name in third_party_imports()
        if not offered & {spelled(one) for one in brought_by.get(name, ())}
    }
    assert missing == set()
    assert {"numpy", "rich"} <= third_party_imports()


@pytest.mark.parametrize("start", [("tlexport",), ("python", "-m", "timeline")])
def test_the_installed_command_tells_its_version(
    installed: Installed, tmp_path: Path, start: Sequence[str]
) -> None:
    ran = installed.run(*start, "--version", cwd=tmp_path)
    assert (ran.stdout, ran.stderr, ran.returncode) == (f"tlexport {__version__}\n", "", 0)


@pytest.mark.parametrize("use", ["timeline.Selection", "from timeline import Selection"])
def test_a_checkout_that_is_not_compiled_is_warned_of_once(tmp_path: Path, use: str) -> None:
    """Where the caller uses it; compiled ones and commands say nothing."""
    shutil.copytree(PACKAGE, tmp_path / "timeline", ignore=shutil.ignore_patterns("*.so", "*.pyd"))
    script = tmp_path / "script.py"
    script.write_text(f"import timeline\n{use}\n{use}\n", encoding="utf-8")

    def run(*words: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
        ran = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stderr

    said = run("script.py")
    assert said.count("is not compiled") == 1
    assert "script.py:2: RuntimeWarning" in said
    assert run("-m", "timeline", "--version") == ""
    (tmp_path / "timeline" / "encoders" / "_wire.c").unlink()  # as in wheels
    assert run("script.py") == ""


def test_the_installed_command_exports_and_reports(
    installed: Installed, shelf: ProfileShelf, tmp_path: Path
) -> None:
    """A timeline and its page, from a directory that has nothing of the project."""
    profile = str(shelf.get("torch-text").path)
    outputs = [("-o", "out.pftrace"), ("--report", "page.html")]
    words = [word for pair in outputs for word in pair]
    ran = installed.run("tlexport", profile, "--kind", "detail", *words, cwd=tmp_path)
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert "Wrote out.pftrace" in ran.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(name for _, name in outputs)
    assert "<style>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_the_installed_package_is_the_wheel(installed: Installed, tmp_path: Path) -> None:
    """Not the project that the tests run from, which the environment of the tests may hold."""
    ran = installed.run("python", "-c", "import timeline; print(timeline.__file__)", cwd=tmp_path)
    assert installed.scripts.parent in Path(ran.stdout.strip()).parents
