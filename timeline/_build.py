"""Build hook that compiles the C sources of the package.

A source that cannot be compiled, because a compiler or the header of SQLite is missing, is left
out: the package then uses Python code instead.
"""

from __future__ import annotations

import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.errors import CCompilerError, ExecError, PlatformError

NAMES = (
    "timeline.analysis.gains._replay",
    "timeline.columns._nesting",
    "timeline.encoders._wire",
    "timeline.sources.decoders._rows",
    "timeline.sources.decoders._scanner",
)
STABLE_ABI = "0x030A0000"
"""The stable ABI of Python 3.10: modules work with that version and all later ones."""
TAG = "cp310-abi3"


class CustomBuildHook(BuildHookInterface[Any]):
    """Hook that adds compiled modules to a wheel, or puts them next to sources if editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the modules before the files of the wheel are collected."""
        root = Path(self.root)
        is_editable = version == "editable"
        into = root if is_editable else Path(tempfile.mkdtemp(prefix="tlexport-build-"))
        self._scratch = None if is_editable else into
        modules: list[Path] = []
        for name in NAMES:
            try:
                modules += _compiled(name, root, into)
            except (CCompilerError, ExecError, PlatformError) as error:
                self.app.display_warning(f"{name} is left out: it cannot be compiled: {error}")
        if modules and not is_editable:
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"{TAG}-{platform}"
            build_data["pure_python"] = False
            for module in modules:
                build_data["force_include"][str(module)] = module.relative_to(into).as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the compiled files, which are in the wheel by now."""
        if self._scratch is not None:
            shutil.rmtree(self._scratch)


def _compiled(name: str, root: Path, into: Path) -> list[Path]:
    """Compile the source of a module; return the paths of the compiled files."""
    extension = Extension(
        name,
        [str((root / name.replace(".", "/")).with_suffix(".c"))],
        define_macros=[("Py_LIMITED_API", STABLE_ABI)],
        py_limited_api=True,
    )
    command = Distribution({"name": "tlexport", "ext_modules": [extension]}).get_command_obj(
        "build_ext"
    )
    with tempfile.TemporaryDirectory(prefix="tlexport-build-") as scratch:
        command.build_lib, command.build_temp, command.force = str(into), scratch, True
        command.ensure_finalized()
        command.run()
    return [Path(output) for output in command.get_outputs()]
