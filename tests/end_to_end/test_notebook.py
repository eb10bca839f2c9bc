"""Proves that the example notebook runs as it is, in a real kernel, and shows what it promises."""

from __future__ import annotations

import re
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


def rows_of(table: str) -> list[list[str]]:
    """The texts of the rows of a table of HTML, without its head."""
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(<td>.*?)</tr>", table)]


def test_it_tells_what_is_slow_and_why(shown: list[str]) -> None:
    """The verdict, who waits for whom, the causes of idle time, the host, and the critical path."""
    opened, verdict, waiting, ops, idle, queued, calls, path, *_ = shown
    assert len(rows_of(opened)) == 8
    assert "Rank 5&#x27;s host falls behind" in verdict or "Rank 5's host falls behind" in verdict
    last = {row[0]: int(row[1]) for row in rows_of(waiting)}
    assert max(last, key=lambda rank: last[rank]) == "5"
    assert {row[-2] for row in rows_of(ops)} == {"5"}
    causes = {(row[0], row[3]): int(row[5]) for row in rows_of(idle)}
    assert causes["5", "host_not_asked"] > 10 * causes.get(("4", "host_not_asked"), 1)
    (_, ahead), (_, late) = ((rank, int(median_ns)) for rank, median_ns in rows_of(queued))
    assert ahead > 5 * late
    assert all(int(row[2]) > int(row[1]) for row in rows_of(calls))
    assert ["host", "5"] in [[row[4], row[2]] for row in rows_of(path)]


def test_it_ends_with_the_run_fixed(shown: list[str]) -> None:
    """The comparison says what was won; nobody holds up the others; the last step is exported."""
    *_, compared, waiting, _plot, report, _closed = shown
    assert "Step -4" in compared
    assert "compared.pftrace</a>" in compared
    caused_ns = [int(row[3]) for row in rows_of(waiting)]
    assert len(caused_ns) == 8
    assert max(caused_ns) < 5_000_000
    assert "slow.pftrace</a>" in report
    assert "https://ui.perfetto.dev" in report


def test_nothing_is_left_beside_it(shown: list[str]) -> None:
    assert shown
    assert list(NOTEBOOK.parent.glob("*.pftrace")) == []
