"""Proves that the example notebook runs as it is, in a real kernel, and shows what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.places import ROOT

nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
ERRORS = "import warnings; warnings.simplefilter('error')"


@pytest.fixture(scope="module")
def stored() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.fixture(scope="module")
def shown(stored: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each code cell shows, as HTML where it can; a warning in any ends the run."""
    from make_profile import __file__ as beside

    cells = [nbformat.v4.new_code_cell(ERRORS), *stored.cells]
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=stored.metadata)
    resources = {"metadata": {"path": str(Path(beside).parent)}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(tmp_path_factory.mktemp("ipython")))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()
    return [text_of(cell) for cell in notebook.cells if cell.cell_type == "code"][1:]


def text_of(cell: Any) -> str:
    texts = []
    for output in cell.outputs:
        data = output.get("data", {})
        texts.append(data.get("text/html") or data.get("text/plain") or output.get("text", ""))
    return "".join(texts)


def test_no_output_is_stored(stored: Any) -> None:
    """What it shows is of the reader's machine."""
    nbformat.validate(stored)
    for cell in stored.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


def test_every_cell_runs_and_shows_its_table(shown: list[str]) -> None:
    """Ranks, overlap, waits, idle time, the slowest step, its path and operators, and the file."""
    opened, overlap, waiting, idle, steps, _plot, path, operators, report, _closed = shown
    assert "waited_for_rank" in waiting
    assert "waiting_for_data" in idle
    assert "computing" in path
    for rank in range(4):
        assert f"<tr><td>{rank}</td><td>trace_view.json</td>" in opened
    assert overlap.count("<tr>") == 1 + 4
    assert "not_overlapped_ns" in overlap
    assert steps.count("<tr>") == 1 + 1
    assert operators.count("<tr>") == 1 + 10
    assert "slow.pftrace</a>" in report
    assert "https://ui.perfetto.dev" in report


def test_nothing_is_left_beside_it(shown: list[str]) -> None:
    assert shown
    assert list(NOTEBOOK.parent.glob("*.pftrace")) == []
