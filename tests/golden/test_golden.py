"""Proves that what SQL answers of a timeline stays as it was: trace, query and answer in a folder.

`trace.json` says which run is simulated, in which layouts it is written, and how each is exported;
`query.sql` is asked of each timeline, and `answer.csv` holds what all of them answer. A folder more
is a question more: TLEXPORT_REGENERATE=1 writes its answer. The queries that users are given, in
timeline/viewer/queries.sql, are compared with the run itself, by tests/end_to_end/test_queries.py.
"""

from __future__ import annotations

import csv
import functools
import io
import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from simulator.parallelism import Parallelism
from tests.support.perfetto_sql import TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main

QUESTIONS = sorted(path.parent for path in Path(__file__).parent.glob("*/trace.json"))
Load = Callable[[str, str, str], TraceProcessor]


@pytest.fixture(scope="module")
def load(shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> Load:
    """The timeline of a layout of a run; run and options are given as JSON, to be told apart by."""

    @functools.cache
    def loaded(layout: str, run: str, options: str) -> TraceProcessor:
        target = tmp_path_factory.mktemp("golden") / "timeline.pftrace"
        parameters = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in json.loads(run).items()
        }
        if "parallelism" in parameters:
            parameters["parallelism"] = Parallelism(*parameters["parallelism"])
        profile = shelf.get(layout, **parameters)
        assert main([str(profile.path), "-q", "-o", str(target), *json.loads(options)]) == 0
        return TraceProcessor.load(target.read_bytes())

    return loaded


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda path: path.name)
def test_answers_stay_what_they_were(load: Load, question: Path) -> None:
    """TLEXPORT_REGENERATE=1 writes the answers anew; read the difference before committing it."""
    trace = json.loads((question / "trace.json").read_text(encoding="utf-8"))
    query = (question / "query.sql").read_text(encoding="utf-8")
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["layout", *re.findall(r"\bAS (\w+)", query.partition("FROM")[0])])
    for layout in trace["layouts"]:
        processor = load(layout, json.dumps(trace["run"]), json.dumps(trace["options"]))
        table.writerows([layout, *answer] for answer in processor.rows(query))
    golden = question / "answer.csv"
    if os.environ.get("TLEXPORT_REGENERATE") == "1":
        golden.write_text(text.getvalue(), encoding="utf-8")
    assert text.getvalue() == golden.read_text(encoding="utf-8")
