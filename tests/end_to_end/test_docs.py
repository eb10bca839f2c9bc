"""Proves that README and docs say what the command line, readers and queries say."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from make_profile import main as make_profile
from tests.support.layout_table import ReadLayout, table_lines
from tests.support.perfetto_sql import TraceProcessor
from tests.support.places import ROOT
from tests.support.profile_shelf import ProfileShelf
from tests.support.public_names import members
from timeline.cli.main import main
from timeline.cli.parser import build_compare_parser, build_parser, build_show_parser
from timeline.profile import open_profile
from timeline.verdict.figures import reference_lines
from timeline.viewer.queries import queries_text

README = ROOT / "README.md"
DOCS = ROOT / ".github" / "docs"
PAGES = (README, *sorted(DOCS.glob("*.md")))
REFERENCE, LAYOUTS_PAGE, VIEWING, LIBRARY = (
    DOCS / name for name in ("reference.md", "layouts.md", "viewing.md", "library.md")
)
HELP = "<!-- help -->\n```text\n", "```\n<!-- /help -->"
JSON = "<!-- json -->\n", "<!-- /json -->"
TABLES = "<!-- tables -->\n", "<!-- /tables -->"
CONSOLE = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"(?<=^```sh\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)]+)\)")
SIZE = re.compile(r"[\d.]+ KB")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
QUERIES = "<!-- queries -->\n", "<!-- /queries -->"
ASKED = ("waited_for", "idle_causes", "critical_path WHERE step = 2")
"""What the README asks: views, one of them in part."""
LAYOUTS = "<!-- layouts -->\n", "<!-- /layouts -->"
SCRIPT = "<!-- slow_step -->\n```python\n", "```\n<!-- /slow_step -->"
EXAMPLE = README.with_name("examples") / "slow_step.py"
WIDTH = "100"


def assert_held(wanted: str, page: Path, marks: tuple[str, str]) -> None:
    """A page holds a text between two marks; UPDATE_README=1 writes it there."""
    opening, closing = marks
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(opening)
    held, _, after = rest.partition(closing)
    if os.environ.get("UPDATE_README"):
        page.write_text(before + opening + wanted + closing + after, encoding="utf-8")
    else:
        assert held == wanted


def help_text(monkeypatch: pytest.MonkeyPatch) -> str:
    """The help as a terminal of the README's width shows it."""
    monkeypatch.setenv("COLUMNS", WIDTH)
    monkeypatch.setenv("NO_COLOR", "1")
    return build_parser().format_help()


def shown_on_a_console(commands: list[str], directory: Path) -> str:
    """What a reader who types these commands there sees."""
    environment = os.environ | {"PYTHON": sys.executable, "LC_ALL": "C.UTF-8"}
    for name in ("COLUMNS", "FORCE_COLOR"):
        environment.pop(name, None)
    programs = (
        f'python() {{ "{sys.executable}" "$@"; }}; '
        f'tlexport() {{ "{sys.executable}" -m timeline "$@"; }}; '
    )
    shown = ""
    for command in commands:
        ran = subprocess.run(
            ["bash", "-c", programs + "set -o pipefail; " + command],
            cwd=directory,
            env=environment | {"PYTHONPATH": str(README.parent)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
        )
        early = "| head" in command  # then a pipe that closes is no error
        assert ran.returncode == 0 or early, ran.stdout
        shown += f"$ {command}\n{ran.stdout}"
    return shown


def test_the_readme_is_short() -> None:
    """What is longer is on a page of its own, to which it leads."""
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 160
    linked = {Path(link).name for link in LINK.findall(text)}
    assert {page.name for page in PAGES if page is not README} <= linked


def names(pages: tuple[Path, ...]) -> list[str]:
    return [page.name for page in pages]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_a_page_shows_what_its_commands_print(tmp_path: Path, page: Path) -> None:
    """All of them, one after the other, as somebody who follows it types them."""
    (tmp_path / "examples").symlink_to(README.parent / "examples")
    make_profile([str(tmp_path / "profile")])
    text = page.read_text(encoding="utf-8")
    blocks = CONSOLE.findall(text)
    commands = [re.findall(r"^\$ (.*)$", block, re.MULTILINE) for block in blocks]
    shown = [shown_on_a_console(command, tmp_path) for command in commands]
    if os.environ.get("UPDATE_README"):
        made = iter(shown)
        text = CONSOLE.sub(lambda held: newer(held[0], next(made)), text)
        page.write_text(text, encoding="utf-8")
    else:
        assert [SIZE.sub("KB", held) for held in blocks] == [SIZE.sub("KB", one) for one in shown]


def newer(held: str, shown: str) -> str:
    """What is shown, unless only sizes are other ones: they depend on names of directories."""
    return held if SIZE.sub("KB", held) == SIZE.sub("KB", shown) else shown


def test_commands_that_are_only_shown_are_commands() -> None:
    """What needs a network or a cluster is not run, but its options are there."""
    lines = [
        line
        for page in PAGES
        for block in SHELL.findall(page.read_text(encoding="utf-8"))
        for line in block.splitlines()
    ]
    executors = set[str]()
    for line in lines:
        match shlex.split(line, comments=True):
            case ["tlexport", "compare", *words]:
                build_compare_parser().parse(words)
            case ["tlexport", "show", *words]:
                build_show_parser().parse(words)
            case ["tlexport", *words]:
                executors.add(build_parser().parse(words).executor)
    assert executors == {"", "dask://head:8786"}
    extras = (README.with_name("pyproject.toml")).read_text(encoding="utf-8")
    for name in re.findall(r"\.\[(\w+)\]", "\n".join(lines)):
        assert f"\n{name} = [" in extras


def options_named(text: str) -> Iterator[str]:
    """Every --option in code, but for those of other programs."""
    for code in re.findall(r"`([^`\n]+)`", text):
        if not code.startswith(("msprof", "ssh", "trace_processor")):
            yield from re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)


def test_every_option_that_a_page_names_is_there() -> None:
    known = build_parser().format_help() + build_compare_parser().format_help()
    # of examples/make_profile.py
    made = {"--slower", "--steps", "--late-host", "--profiled", "--layout", "--starved"}
    named = {option for page in PAGES for option in options_named(page.read_text(encoding="utf-8"))}
    assert {"--align", "--fit", "--keep-going"} <= named
    assert {option for option in named if option not in known} <= made


def anchor(heading: str) -> str:
    """The name that a page gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


LINKING = (*PAGES, DOCS.parent / "CONTRIBUTING.md", DOCS.parent / "CHANGELOG.md")


@pytest.mark.parametrize("here", LINKING, ids=names(LINKING))
def test_links_lead_somewhere(here: Path) -> None:
    """To a file of the project, and to a heading in it."""
    for link in LINK.findall(here.read_text(encoding="utf-8")):
        if link.startswith("https://"):
            continue
        name, _, heading = link.partition("#")
        target = here.parent / name if name else here
        assert target.exists(), link
        if heading:
            headings = HEADING.findall(target.read_text(encoding="utf-8"))
            assert heading in map(anchor, headings), link


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse spells short options otherwise")
def test_the_reference_holds_the_help_of_this_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert_held(help_text(monkeypatch), REFERENCE, HELP)


def keys_of(value: object) -> set[str]:
    """The names of all values in a JSON document."""
    if isinstance(value, dict):
        return set(value).union(*map(keys_of, value.values()))
    if isinstance(value, list):
        return set[str]().union(*map(keys_of, value))
    return set()


def test_the_reference_lists_every_table_of_the_json() -> None:
    """As its declaration says what rows and columns are."""
    assert_held("".join(f"{line}\n" for line in reference_lines()), REFERENCE, TABLES)


def test_the_reference_names_every_key_of_the_json(
    shelf: ProfileShelf, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever reads the report by program finds each of its names explained."""
    profile = str(shelf.get("torch-db", steps=6).path)
    table = ["--csv", str(tmp_path / "steps.csv")]
    limited = ["--kind", "detail", "--limit", "14KB", "-o", str(tmp_path / "out.pftrace")]
    tables = [str(shelf.get("mindspore-tables").path), "-o", str(tmp_path / "tables.pftrace")]
    both = ["compare", profile, profile, "-o", str(tmp_path / "both.pftrace")]
    keys = set[str]()
    for arguments in ([profile, *table, *limited], [profile, "--list"], tables, both):
        assert main([*arguments, "--json"]) == 0
        keys |= keys_of(json.loads(capsys.readouterr().out))
    text = REFERENCE.read_text(encoding="utf-8")
    described = text.partition(JSON[0])[2].partition(JSON[1])[0]
    assert {"resolution_ns", "spread", "evidence", "delta_ns"} <= keys
    assert {key for key in keys if f"`{key}`" not in described} == set()


def test_the_page_of_layouts_says_what_each_holds(layouts: dict[str, ReadLayout]) -> None:
    """A layout that holds more or less of the simulated run than it did changes the table."""
    assert_held(
        "".join(f"{line}\n" for line in table_lines(layouts.values())), LAYOUTS_PAGE, LAYOUTS
    )


def test_a_page_shows_what_queries_answer(tmp_path: Path) -> None:
    """On the profile of the other examples."""
    target = tmp_path / "timeline.pftrace"
    assert make_profile([str(tmp_path / "profile")]) == 0
    assert main([str(tmp_path / "profile"), "--kind", "detail", "-o", str(target), "-q"]) == 0
    processor = TraceProcessor.load(target.read_bytes())
    processor.rows(queries_text())
    shown = "\n".join(f"> SELECT * FROM {view};\n{answer(processor, view)}" for view in ASKED)
    assert_held(f"```text\n{shown}```\n", VIEWING, QUERIES)


def answer(processor: TraceProcessor, view: str) -> str:
    """The rows of a view below the names of its columns."""
    columns = f"SELECT name FROM pragma_table_info('{view.split()[0]}')"
    names = [name for (name,) in processor.rows(columns)]
    table = [
        names,
        *([str(cell) for cell in row] for row in processor.rows(f"SELECT * FROM {view}")),
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) + "\n"
        for row in table
    )


def test_a_page_shows_the_example_of_library_use() -> None:
    """All of it but the sentence at its head."""
    assert_held(EXAMPLE.read_text(encoding="utf-8").partition("\n\n")[2], LIBRARY, SCRIPT)


def test_the_page_of_the_library_names_all_that_is_there() -> None:
    """Every public name, every table of a profile, and every way to ask for one."""
    text = re.sub(r"```.*?```", "", LIBRARY.read_text(encoding="utf-8"), flags=re.DOTALL)
    told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text))))
    asked = [name for name, _ in members() if name.startswith("Profile.")]
    public = [name for name, _ in members() if "." not in name and not name.startswith("__")]
    assert {name.removeprefix("Profile.") for name in asked} | set(public) <= told
    ways = {
        way
        for name, method in members()
        if name in asked and callable(method) and "by" in inspect.signature(method).parameters
        for way in re.findall(r"'(\w+)'", inspect.signature(method).parameters["by"].annotation)
    }
    assert {"kind", "launch", "pair"} <= ways
    assert {way for way in ways if f'"{way}"' not in text} == set()


def test_the_example_of_library_use_runs(shelf: ProfileShelf, tmp_path: Path) -> None:
    """On the profile beside it, without a warning; it names the slowest step of all ranks."""
    path = shelf.copy("torch-text", tmp_path / "profile").path
    ran = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "rank 0 waited for rank 1" in ran.stdout
    assert "rank 1 computing" in ran.stdout
    assert "Wrote slow.pftrace" in ran.stdout
    steps = open_profile(path).steps()
    assert f", step {steps['step'][steps['span_ns'].argmax()]}\n" in ran.stdout
