"""Proves that the compiled modules stay within their memory, under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.places import ROOT

RUN = Path(__file__).parent / "compiled" / "run.sh"
COMPILER = os.environ.get("CC", "cc")
RUNS = 10_000
FEW_CASES = {"SCANNER_EXAMPLES": "4", "TLEXPORT_EXAMPLES": "8", "TLEXPORT_SWEEP_STEP": "9"}
LEFT_OUT = (
    *("whole_profiles", "breaks_off_anywhere"),  # any bytes, cut anywhere, are the harnesses' task
    *("kept_at_every_power", "step_by_step"),  # more of the same merging
)
SANITIZE_SECONDS = 500
"""It takes 30 of a core of its own."""


def has_sanitizers(compiler: str, directory: Path) -> bool:
    """Whether a program that is compiled with both runs."""
    if shutil.which(compiler) is None:
        return False
    (directory / "a.c").write_text("int main(void) { return 0; }")
    flags = ["-fsanitize=address,undefined", "a.c", "-o", "a"]
    made = subprocess.run([compiler, *flags], cwd=directory, capture_output=True, check=False)
    return made.returncode == 0 and not subprocess.run([directory / "a"], check=False).returncode


@pytest.mark.skipif(os.name != "posix", reason="the harnesses are run by a shell")
def test_any_bytes_are_read_within_bounds(tmp_path: Path) -> None:
    """What the modules give back holds together, whatever they are given."""
    if not has_sanitizers(COMPILER, tmp_path):
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


@pytest.mark.skipif(sys.platform != "linux", reason="sanitizers are loaded before Python by ld.so")
def test_python_calls_them_within_bounds(tmp_path: Path) -> None:
    """Their own tests pass with each module as Python loads it; none is skipped for want of one."""
    if not has_sanitizers("gcc", tmp_path):
        pytest.skip("no gcc with sanitizers is here")
    ran = subprocess.run(
        [ROOT / "tests" / "sanitize.sh", "-k", f"not ({' or '.join(LEFT_OUT)})"],
        env=os.environ | FEW_CASES | {"PYTHON": sys.executable, "CI": "true"},
        capture_output=True,
        text=True,
        timeout=SANITIZE_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    modules = list((ROOT / "timeline").rglob("_*.c"))
    compiled, left_out = ran.stdout.count(": compiled\n"), ran.stdout.count(": left out")
    assert compiled + left_out == len(modules) > 0
    assert ("skipped" in ran.stdout) == bool(left_out)
