"""Proves that a Chinese timeline shows no English words, and answers what an English one does."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.perfetto_sql import Row, TraceProcessor
from tests.support.profile_shelf import ProfileShelf
from timeline import read_verdict
from timeline.cli.main import main
from timeline.language import said, spoken
from timeline.viewer.queries import queries_text, questions, sql_of

CASES = {
    "torch-db": ("--kind", "detail"),
    "mindspore-2.1": ("--kind", "detail", "--group-by", "layer"),
    "torch-text": ("-o", "t.json"),
    "kineto": ("--limit", "40KB"),
}
ENGLISH_WORDS = re.compile(r"\b[a-z]{2,} [a-z]{2,} [a-z]{2,}\b")
CHINESE = re.compile("[\u4e00-\u9fff]")
OF_PROFILE = "('task', 'hccl', 'api', 'scope', 'communication')"
"""Categories of slices that the profile names."""


@dataclass(frozen=True)
class Timelines:
    """A run drawn in both languages, and all questions prepared in each."""

    english: TraceProcessor
    chinese: TraceProcessor
    path: Path

    def both(self, sql: str) -> list[list[Row]]:
        """What both answer."""
        return [self.english.rows(sql), self.chinese.rows(sql)]


@pytest.fixture(scope="module", params=CASES)
def drawn(
    request: pytest.FixtureRequest, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> Timelines:
    """A run of each case."""
    folder, options = tmp_path_factory.mktemp("zh"), list(CASES[request.param])
    name = options.pop() if "-o" in options else "t.pftrace"
    options = [one for one in options if one != "-o"]
    profile = str(shelf.get(request.param, ops_per_step=24, planes=4).path)
    loaded = []
    for language in ("en", "zh"):
        path = folder / f"{language}-{name}"
        assert main([profile, "-q", "-o", str(path), "--lang", language, *options]) == 0
        processor = TraceProcessor.load(path.read_bytes())
        with spoken(language):
            processor.rows(queries_text())
        loaded.append(processor)
    return Timelines(loaded[0], loaded[1], path)


@pytest.mark.parametrize("question", [one.view for one in questions()])
def test_questions_have_the_same_numbers(drawn: Timelines, question: str) -> None:
    """Text differs, the order of rows that only text tells apart, and numbers of slices."""
    view = f"pragma_table_info('{question}')"
    of_view = drawn.english.rows(f"SELECT name FROM {view} WHERE name NOT GLOB '*id'")
    columns = ", ".join(str(name) for (name,) in of_view)
    english, chinese = (
        sorted([tuple(cell for cell in row if not isinstance(cell, str)) for row in rows], key=repr)
        for rows in drawn.both(f"SELECT {columns} FROM {question}")
    )
    assert chinese == english


def test_sql_of_users_is_asked_as_it_is(drawn: Timelines) -> None:
    """Operators may be called what rows are; the views that it uses are of the language."""
    sql = "SELECT 'Transfer' AS cause, count(*) FROM communication_ops"
    (english,) = drawn.english.rows(sql_of(sql))
    with spoken("zh"):
        (chinese,) = drawn.chinese.rows(sql_of(sql))
    assert chinese == english
    assert english[0] == "Transfer"


def test_no_sentence_is_english(drawn: Timelines) -> None:
    names = drawn.chinese.rows(
        f"SELECT DISTINCT name FROM slice WHERE category NOT IN {OF_PROFILE} AND name NOT NULL "
        "UNION SELECT name FROM track WHERE name NOT NULL UNION "
        "SELECT string_value FROM args WHERE key GLOB '*.sentence' OR key = 'description'"
    )
    left = [
        name
        for (name,) in names
        if ENGLISH_WORDS.search(str(name)) and not str(name).startswith("tlexport ")
    ]
    assert not left


def test_names_of_the_profile_stay(drawn: Timelines) -> None:
    """All but the number of merged slices is what it is in English."""
    names = f"SELECT name FROM slice WHERE category IN {OF_PROFILE} AND name NOT GLOB '[0-9]*'"
    assert drawn.chinese.rows(names) == drawn.english.rows(names)


def test_rows_are_in_the_order_of_the_english_ones(drawn: Timelines) -> None:
    """The UI sorts rows without a parent by name."""
    rows = "SELECT id, name FROM track WHERE parent_id IS NULL AND name NOT NULL ORDER BY name"
    orders = [[row for row, _ in one.rows(rows)] for one in (drawn.english, drawn.chinese)]
    assert orders[0] == orders[1]


@pytest.mark.parametrize("asked", ["en", "zh"])
def test_a_verdict_is_shown_in_the_language_of_its_file(
    drawn: Timelines, capsys: pytest.CaptureFixture[str], asked: str
) -> None:
    """As text and as JSON, whatever --lang asks for."""
    english = list(read_verdict(drawn.path).sentences)
    with spoken("zh"):
        chinese = list(map(said, english))
    for path, sentences in (
        (drawn.path, chinese),
        (drawn.path.with_name(drawn.path.name.replace("zh-", "en-")), english),
    ):
        assert main(["show", str(path), "--lang", asked]) == 0
        shown = capsys.readouterr()
        assert shown.out.startswith(sentences[0])
        assert bool(CHINESE.search(shown.out + shown.err)) == (sentences is chinese)
        assert main(["show", str(path), "--json", "--lang", asked]) == 0
        assert json.loads(capsys.readouterr().out)["sentences"] == sentences
