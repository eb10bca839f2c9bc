"""Proves that the layers of the package depend in one direction only."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import timeline
from tests.support.profile_shelf import ProfileShelf

PACKAGE = Path(timeline.__file__).parent
WORDS = frozenset({"errors", "ranges", "selection", "units", "version"})
"""Modules that say what things are called; every layer may use them."""
BELOW: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "version": frozenset(),
    "ranges": frozenset({"errors"}),
    "units": frozenset({"errors"}),
    "selection": frozenset({"errors", "ranges", "units"}),
    "records": frozenset({"errors", "ranges"}),
    "sources": WORDS | {"records"},
    "analysis": WORDS | {"records"},
    "tracks": WORDS | {"records", "analysis"},
    "encoders": WORDS | {"records", "tracks"},
    "printable": frozenset(),
    "progress": WORDS | {"printable"},
    "notebook": frozenset(),
    "short_names": frozenset(),
    "table": frozenset({"notebook", "short_names"}),
    "figures": WORDS | {"records", "analysis", "tracks", "table"},
    "verdict": WORDS | {"records", "analysis", "table", "figures"},
    "operator_pairs": frozenset({"table"}),
    "check_text": WORDS | {"table"},
    "comparison": WORDS
    | {"analysis", "table", "figures", "operator_pairs", "short_names", "verdict"},
    "step_times": WORDS | {"records", "table", "figures"},
    "report": WORDS
    | {"check_text", "records", "notebook", "table", "figures", "verdict", "step_times"},
    "page": frozenset({"printable"}),
    "terminal": WORDS
    | {"page", "printable", "records", "short_names", "table", "figures", "verdict"},
    "comparison_text": WORDS
    | {"page", "table", "comparison", "operator_pairs", "short_names", "terminal"},
    "usage": WORDS,
    "termination": frozenset(),
    "single_command": frozenset(),
    "_build": frozenset(),
}
"""What each part may import besides itself; parts that are not here sit on top of everything."""
TOP = frozenset(
    {
        "",
        "__main__",
        "arguments",
        "chosen_ranks",
        "cli",
        "comparing",
        "completion",
        "exporting",
        "fitting",
        "jobs",
        "listing",
        "options",
        "pipeline",
        "processes",
        "profile",
        "problems",
        "rank_records",
        "reading",
        "report_page",
        "share",
        "viewer",
        "suggestion",
        "targets",
    }
)

LATER: dict[str, frozenset[str]] = {
    "analysis.clocks": frozenset({"analysis.alignment"}),
    "cli": frozenset(
        {
            "comparing",
            "comparison_text",
            "completion",
            "exporting",
            "listing",
            "page",
            "profile",
            "progress",
            "terminal",
            "viewer",
        }
    ),
    "comparing": frozenset({"report_page"}),
    "encoders.formats": frozenset(
        {"encoders.chrome", "encoders.perfetto", "encoders.perfetto_tracks"}
    ),
    "jobs": frozenset({"processes"}),
    "pipeline": frozenset({"report_page"}),
    "profile": frozenset({"figures", "reading"}),
    "sources.companions": frozenset(
        {"sources.companion_measures", "sources.companion_tables", "sources.mindspore_host"}
    ),
    "sources.profile_place": frozenset({"sources.unpacking"}),
    "sources.readers": frozenset(
        {
            "sources.database_source",
            "sources.kineto_source",
            "sources.mindspore_raw",
            "sources.mindspore_text",
            "sources.parsed_source",
            "sources.raw_source",
            "sources.table_source",
            "sources.trace_sources",
        }
    ),
    "targets": frozenset({"report_page"}),
}
"""Imports inside functions: what only some profiles, files and options need is imported by the
module that chooses it, where it does. All other imports of the package stand at the top."""

OPENERS = frozenset({"open", "read_bytes", "read_text", "Connection", "fdopen", "memmap"})
WRITERS = frozenset(
    {
        "TemporaryFile",
        "chmod",
        "copyfile",
        "copytree",
        "link_to",
        "mkdir",
        "mkstemp",
        "move",
        "remove",
        "rename",
        "rmdir",
        "symlink_to",
        "touch",
        "truncate",
        "unlink",
        "utime",
        "write_bytes",
        "write_text",
    }
)
UNPACKS = "sources.unpacking"
PRIVATE_COPIES = {
    "records.mapped_files": frozenset({"TemporaryFile"}),
    "records.parcels": frozenset({"TemporaryFile"}),
    "sources.sqlite_connection": frozenset({"copyfile"}),
    UNPACKS: frozenset({"mkdir"}),
}
"""What writes into a temporary directory, and how."""


@dataclass(frozen=True)
class Module:
    """One module of the package: its dotted name without the package, and its source as a tree."""

    name: str
    tree: ast.Module

    @property
    def part(self) -> str:
        """The layer or top module that it belongs to; the package itself is the empty string."""
        return self.name.partition(".")[0]

    def imports(self) -> Iterator[str]:
        """What it imports of the package, as dotted names without the package."""
        return self._imports_in(self.tree)

    def later_imports(self) -> frozenset[str]:
        """What it imports of the package inside functions."""
        functions = (ast.FunctionDef, ast.AsyncFunctionDef)
        inside = [own for own in ast.walk(self.tree) if isinstance(own, functions)]
        return frozenset(name for own in inside for name in self._imports_in(own))

    def _imports_in(self, tree: ast.AST) -> Iterator[str]:
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.name} has a relative import"
                yield from _inside([node.module or ""])
            elif isinstance(node, ast.Import):
                yield from _inside(alias.name for alias in node.names)

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """The last name of everything that is called, with the call."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    yield node.func.id, node
                elif isinstance(node.func, ast.Attribute):
                    yield node.func.attr, node


def _inside(names: Iterable[str]) -> Iterator[str]:
    for name in names:
        package, _, rest = name.partition(".")
        if package == timeline.__name__:
            yield rest


def _modules() -> list[Module]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found.append(Module(name, ast.parse(path.read_text(encoding="utf-8"))))
    return found


MODULES = _modules()
NAMES = [module.name or timeline.__name__ for module in MODULES]
every_module = pytest.mark.parametrize("module", MODULES, ids=NAMES)


def test_every_module_belongs_to_a_part() -> None:
    """A new part of the package has to be given its place in the order first."""
    parts = {module.part for module in MODULES}
    assert parts - BELOW.keys() - TOP == set()
    assert {"records", "sources", "analysis", "tracks", "encoders"} <= parts


@every_module
def test_imports_point_down(module: Module) -> None:
    """A layer knows the layers below it and nothing of those above."""
    allowed = BELOW.get(module.part)
    if allowed is None:
        allowed = frozenset(BELOW) | (TOP - {"__main__"})
    used = {name.partition(".")[0] for name in module.imports()} - {module.part}
    assert used <= allowed, f"{module.name} imports {sorted(used - allowed)}"


@every_module
def test_nothing_below_imports_the_top(module: Module) -> None:
    """Pipeline, command line, library and listing can be taken away without any layer noticing."""
    if module.part in TOP:
        assert "__main__" not in set(module.imports())
        return
    above = (TOP | {"report"}) - {module.part}
    assert not {name.partition(".")[0] for name in module.imports()} & above


@every_module
def test_imports_inside_functions_are_of_what_is_chosen_there(module: Module) -> None:
    """Starting fast is up to few modules; elsewhere imports are where they are looked for."""
    assert module.later_imports() == LATER.get(module.name, frozenset())


MEASURES = "sources.companion_measures"
DATABASE = frozenset({"sources.database_source"})
PERFETTO = frozenset({"encoders.perfetto", "encoders.perfetto_tracks"})
EXPORT = frozenset({"exporting", "figures", "page", "profile", "progress", "reading", "terminal"})


@pytest.mark.parametrize(
    ("layout", "ranks", "options", "needed"),
    [
        ("torch-db", 1, "--list", {"listing", "profile", "progress", *DATABASE}),
        ("torch-db", 1, "--kind detail -o a.pftrace", {*EXPORT, MEASURES, *DATABASE, *PERFETTO}),
        (
            "torch-text",
            2,
            "-o a.json",
            {*EXPORT, MEASURES, "analysis.alignment", "encoders.chrome", "sources.trace_sources"},
        ),
    ],
)
def test_nothing_is_loaded_that_is_not_chosen(
    shelf: ProfileShelf, tmp_path: Path, layout: str, ranks: int, options: str, needed: set[str]
) -> None:
    """Of what only some profiles, files and options need, a run loads what it needs."""
    chosen = sorted({name for names in LATER.values() for name in names})
    code = (
        "import sys; from timeline.cli import main; assert main(sys.argv[1:]) == 0;"
        f"print(*(name for name in {chosen} if f'timeline.{{name}}' in sys.modules))"
    )
    path = str(shelf.get(layout, ranks=ranks).path)
    command = [sys.executable, "-c", code, path, *options.split()]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(ran.stdout.splitlines()[-1].split()) == needed


@every_module
def test_only_sources_open_files(module: Module) -> None:
    """A profile is opened by its readers and by nothing else; encoders open what they write.

    The viewer opens what was written, to serve it, and processes the room for what they pass on.
    """
    opened = [call for name, call in module.calls() if name in OPENERS]
    others = ("viewer.serving", "records.parcels")
    if module.part in ("sources", "encoders") or module.name in others:
        return
    foreign = [call for call in opened if "devnull" not in ast.dump(call)]
    assert not foreign, f"{module.name} opens a file in line {foreign[0].lineno}"


@every_module
def test_only_encoders_write_files(module: Module) -> None:
    """Encoders change the file system, but for private copies: databases, archives, columns."""
    writes = {name for name, _ in module.calls() if name in WRITERS}
    if module.part == "encoders":
        return
    assert writes <= PRIVATE_COPIES.get(module.name, frozenset())


def test_sources_open_for_reading_only() -> None:
    """No reader passes a mode that writes, appends or creates; what is unpacked is created."""
    modes = []
    for module in MODULES:
        if module.part != "sources" or module.name == UNPACKS:
            continue
        for name, call in module.calls():
            if name == "open":
                modes += [own.value for own in call.args[:2] if isinstance(own, ast.Constant)]
    assert modes, "no reader opens a file with a mode"
    assert set(modes) <= {"r", "rb"}


@every_module
def test_opens_with_one_sentence(module: Module) -> None:
    """The first paragraph of a module is one sentence that says what it is for."""
    docstring = ast.get_docstring(module.tree)
    assert docstring, f"{module.name} has no docstring"
    opening = " ".join(docstring.split("\n\n")[0].split())
    assert opening.endswith("."), opening
    assert not re.search(r"[.!?] +[A-Z]", opening), opening


@every_module
def test_exported_names_exist(module: Module) -> None:
    """Every name in `__all__` is there, once."""
    loaded = importlib.import_module(".".join(filter(None, (timeline.__name__, module.name))))
    names = getattr(loaded, "__all__", [])
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(loaded, name)] == []


def test_the_package_exports_its_errors() -> None:
    """Whoever uses the package as a library can catch each of its errors by name."""
    from timeline import errors

    tree = {name for name in errors.__all__ if name.endswith("Error")}
    assert tree | {"__version__"} <= set(timeline.__all__)
    for name in tree:
        assert issubclass(getattr(timeline, name), timeline.TimelineError)


def test_help_needs_no_library() -> None:
    """What encodes and computes is loaded when it is needed, not by every `--help`."""
    encoding = ("numpy", "perfetto", "google.protobuf", "orjson", "msgspec", "apsw")
    libraries = (*encoding, "rich", "argcomplete", "jinja2", "matplotlib")
    code = f"import sys, timeline.cli; print([n for n in {libraries} if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
