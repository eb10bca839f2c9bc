"""Proves that the compiled modules stay within their memory, without Python, under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "compiled" / "run.sh"
COMPILER = os.environ.get("CC", "cc")
RUNS = 20_000


def has_sanitizers(directory: Path) -> bool:
    """Whether a program that is compiled with both runs."""
    if shutil.which(COMPILER) is None:
        return False
    (directory / "a.c").write_text("int main(void) { return 0; }")
    flags = ["-fsanitize=address,undefined", "a.c", "-o", "a"]
    made = subprocess.run([COMPILER, *flags], cwd=directory, capture_output=True, check=False)
    return made.returncode == 0 and not subprocess.run([directory / "a"], check=False).returncode


@pytest.mark.skipif(os.name != "posix", reason="the harnesses are run by a shell")
def test_any_bytes_are_read_within_bounds(tmp_path: Path) -> None:
    """What the modules give back holds together, whatever they are given."""
    if not has_sanitizers(tmp_path):
        pytest.skip("no compiler with sanitizers is here")
    ran = subprocess.run(
        [RUN, str(RUNS), tmp_path / "corpus"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count(f"Done {RUNS} runs") >= 4
