"""What modules may do besides importing each other: open, write, load late, and say what they are.

Which part may import which is a contract in pyproject.toml, held by `lint-imports`.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

import timeline
from tests.support.profile_shelf import ProfileShelf

PACKAGE = Path(timeline.__file__).parent
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
UNPACKS = "sources.files.archives"
PRIVATE_COPIES = {
    "sources.files.remote_tree": frozenset({"mkdir", "unlink"}),
    "sources.finding.remote": frozenset({"unlink"}),
    "columns.spill": frozenset({"TemporaryFile"}),
    "ranks.shared_columns": frozenset({"TemporaryFile"}),
    "sources.decoders.sqlite": frozenset({"copyfile"}),
    UNPACKS: frozenset({"mkdir"}),
}
"""What writes into a temporary directory, and how."""


@dataclass(frozen=True)
class Module:
    """One module of the package: its dotted name without the package, and its source."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        """The source as a tree, which takes too long to be made where tests are only collected."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @property
    def part(self) -> str:
        """The layer or top module that it belongs to; the package itself is the empty string."""
        return self.name.partition(".")[0]

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """The last name of everything that is called, with the call."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                if isinstance(node.func, ast.Name):
                    yield node.func.id, node
                elif isinstance(node.func, ast.Attribute):
                    yield node.func.attr, node


def _modules() -> list[Module]:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        found.append(Module(name, path))
    return found


MODULES = _modules()
"""All of them; a test looks at one after the other and lists those that break its rule."""


SOMETIMES = (
    "commands.compare",
    "commands.export",
    "commands.listing",
    "encoders.chrome",
    "encoders.perfetto",
    "encoders.piece_maker",
    "reports.html",
    "reports.terminal",
    "sources.cann_raw.source",
    "sources.companions.counters",
    "sources.database.source",
    "sources.decoders.sqlite",
    "sources.decoders.trace_events",
    "sources.files.archives",
    "sources.kineto.source",
    "sources.mindspore.raw_source",
    "sources.mindspore.text_source",
    "sources.msprof_sqlite.source",
    "sources.tables.source",
    "sources.trace_json.source",
    "tracks.detail",
    "viewer",
)
"""What only some profiles, files and options need."""


@pytest.mark.parametrize(
    ("layout", "options", "needed"),
    [
        (
            "torch-db",
            "--list",
            "commands.listing sources.database.source sources.decoders.sqlite",
        ),
        (
            "torch-db",
            "--kind detail -o a.pftrace",
            "commands.export encoders.perfetto encoders.piece_maker reports.terminal"
            " sources.companions.counters sources.database.source sources.decoders.sqlite"
            " tracks.detail",
        ),
        (
            "torch-text",
            "--verdict",
            "reports.terminal sources.decoders.trace_events sources.trace_json.source",
        ),
    ],
)
def test_nothing_is_loaded_that_is_not_chosen(
    shelf: ProfileShelf, tmp_path: Path, layout: str, options: str, needed: str
) -> None:
    """Of what only some profiles, files and options need, a run loads what it needs."""
    code = (
        "import sys; from timeline.cli.main import main; assert main(sys.argv[1:]) == 0;"
        f"print(*(name for name in {SOMETIMES} if f'timeline.{{name}}' in sys.modules))"
    )
    path = str(shelf.get(layout).path)
    command = [sys.executable, "-c", code, path, *options.split()]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == needed


def test_only_sources_open_files() -> None:
    """A profile is opened by its readers and by nothing else; encoders open what they write.

    The viewer opens what was written, to serve it, and its queries; a page its script; processes
    open the room for what they pass on, options the file that is their value, and the catalogue
    its own.
    """
    others = (
        "viewer.serving",
        "viewer.queries",
        "reports.html.page",
        "ranks.shared_columns",
        "options",
        "language.catalogue",
    )
    foreign = [
        f"{module.name} opens a file in line {call.lineno}"
        for module in MODULES
        if module.part not in ("sources", "encoders") and module.name not in others
        for name, call in module.calls()
        if name in OPENERS and "devnull" not in ast.dump(call)
    ]
    assert foreign == []


def test_only_encoders_write_files() -> None:
    """Encoders change the file system, but for private copies: databases, archives, columns."""
    foreign = [
        f"{module.name} calls {name} in line {call.lineno}"
        for module in MODULES
        if module.part != "encoders"
        for name, call in module.calls()
        if name in WRITERS - PRIVATE_COPIES.get(module.name, frozenset())
    ]
    assert foreign == []


def test_sources_open_for_reading_only() -> None:
    """No reader passes a mode that writes, appends or creates; what is unpacked is created."""
    modes = []
    for module in MODULES:
        if module.part != "sources" or module.name == UNPACKS:
            continue
        for name, call in module.calls():
            if name == "open":
                modes += [arg.value for arg in call.args[:2] if isinstance(arg, ast.Constant)]
    assert modes, "no reader opens a file with a mode"
    assert set(modes) <= {"r", "rb"}


NETWORK = frozenset({"ftplib", "http", "http.server", "socket", "socketserver", "urllib.request"})
RUNS_CODE = frozenset({"ctypes", "marshal", "pickle", "runpy", "shelve"})
RUN_BY = {"process": {"ctypes"}, "ranks.shared_columns": {"pickle"}}


def test_nothing_of_a_profile_is_run_or_sent() -> None:
    """The viewer alone opens sockets; only what processes pass to each other is unpickled.

    Methods of dataclasses are compiled, of the names of their fields. The C library is called
    directly to set how it hands out memory.
    """
    for module in MODULES:
        imported = set[str]()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                imported |= {one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
        if module.part != "viewer":
            assert not imported & NETWORK, module.name
        assert imported & RUNS_CODE == RUN_BY.get(module.name, set()), module.name
        if module.name != "frozen":
            called = {name for name, _ in module.calls()}
            assert not called & {"eval", "exec", "system", "popen", "Popen"}, module.name


def test_opens_with_one_sentence() -> None:
    """The first paragraph of a module is one sentence that says what it is for."""
    for module in MODULES:
        docstring = ast.get_docstring(module.tree)
        assert docstring, f"{module.name} has no docstring"
        opening = " ".join(docstring.split("\n\n")[0].split())
        assert opening.endswith("."), f"{module.name}: {opening}"
        assert not re.search(r"[.!?] +[A-Z]", opening), f"{module.name}: {opening}"


def test_only_the_package_itself_lists_its_names() -> None:
    """What a module is for others shows in its names; the list of the library is there, once."""
    listing = {module.name for module in MODULES if "__all__ =" in ast.unparse(module.tree)}
    assert listing == {""}
    assert len(timeline.__all__) == len(set(timeline.__all__))
    assert [name for name in timeline.__all__ if not hasattr(timeline, name)] == []


def test_the_package_exports_its_errors() -> None:
    """Whoever uses the package as a library can catch each of its errors by name."""
    from timeline import errors

    tree = {name for name in vars(errors) if name.endswith("Error")}
    assert tree | {"__version__"} <= set(timeline.__all__)
    for name in tree:
        assert issubclass(getattr(timeline, name), timeline.TimelineError)


def test_help_needs_no_library() -> None:
    """What encodes and computes is loaded when it is needed, not by every `--help`."""
    encoding = ("numpy", "perfetto", "google.protobuf", "orjson", "msgspec", "apsw")
    libraries = (*encoding, "rich", "argcomplete")
    code = (
        "import sys; from timeline.cli.main import main\n"
        "try: main(['--help'])\n"
        f"finally: print([n for n in {libraries} if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
