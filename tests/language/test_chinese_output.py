"""Proves that what the command prints and the pages that it writes hold no English sentence."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.html_page import read
from tests.support.places import real_capture
from tests.support.profile_shelf import ProfileShelf
from tests.support.run_command import Command
from timeline import UsageError, export, read_verdict
from timeline.cli.parser import (
    build_compare_parser,
    build_open_parser,
    build_parser,
    build_query_parser,
    build_show_parser,
)
from timeline.language import said, spoken
from timeline.reports.html.page import columns_of_runs
from timeline.sources.companions.file_kinds import EXPORT_KINDS, UNUSED_NUMBERED

LAYOUTS = ("torch-db", "mindspore-2.1", "kineto", "msprof-sqlite")
CAPTURES = ("torch-npu-db", "torch-npu-text", "mindspore-2.1", "mindspore-run2", "msprof-single")
ENGLISH = re.compile(r"(?<![\w./:])(?:[a-z]{2,} ){2}[a-z]{2,}\b")
"""Three words of a sentence; names of files and calls hold other characters."""
CHINESE = re.compile("[\u4e00-\u9fff]")


def english_in(text: str) -> list[str]:
    """Return the lines that hold a sentence in English, but for commands."""
    lines = (line for line in text.splitlines() if "tlexport " not in line)
    return [line for line in lines if ENGLISH.search(line)]


@pytest.fixture(params=LAYOUTS)
def profile(request: pytest.FixtureRequest, shelf: ProfileShelf) -> Path:
    """A profile of a simulated run."""
    return shelf.get(request.param, ops_per_step=24, planes=4).path


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
@pytest.mark.parametrize(
    "words",
    [
        ("{}", "-o", "t.pftrace"),
        ("{}", "-o", "t.pftrace", "--csv", "-"),
        ("compare", "{}", "--steps", "1:2"),
        ("--help",),
    ],
)
def test_what_a_terminal_lacks_is_escaped(
    shelf: ProfileShelf,
    command: Command,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    encoding: str,
) -> None:
    """No command ends with an error after its file was written."""
    profile = str(shelf.get("torch-db").path)
    outputs = [io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", outputs[0])
    monkeypatch.setattr(sys, "stderr", outputs[1])
    with contextlib.suppress(SystemExit):
        assert command(*(word.format(profile) for word in words), "--lang", "zh").code == 0
    said = "".join(map(_written, outputs))
    assert re.search(r"\\u[4-9a-f]", said)


def _written(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def test_a_verdict_is_chinese(command: Command, profile: Path) -> None:
    said = command(profile, "-v", "--lang", "zh")
    assert said.code == 0
    assert CHINESE.search(said.out.splitlines()[0])
    assert english_in(said.out + said.err) == []


def test_reasons_why_files_are_not_used_are_chinese() -> None:
    reasons = {kind.what for kind in EXPORT_KINDS} | {*UNUSED_NUMBERED.values()}
    with spoken("zh"):
        left = [one for one in reasons if one in said(f"not used of rank 0: a.csv ({one})")]
    assert left == []


@pytest.mark.parametrize("name", CAPTURES)
def test_verdicts_of_real_captures_are_chinese(command: Command, name: str) -> None:
    said = command(real_capture(name), "-v", "-o", "t.pftrace", "--lang", "zh")
    assert said.code == 0
    assert english_in(said.out + said.err) == []


@pytest.mark.parametrize("names", [CAPTURES[:2], CAPTURES[:1] * 2])
def test_comparisons_of_real_captures_are_chinese(command: Command, names: tuple[str, ...]) -> None:
    said = command("compare", *map(real_capture, names), "--lang", "zh")
    assert said.code == 0
    assert english_in(said.out + said.err) == []


def test_a_comparison_is_chinese(command: Command, profile: Path) -> None:
    said = command("compare", profile, "--steps", "1:2", "-v", "--lang", "zh")
    assert said.code == 0
    assert english_in(said.out + said.err) == []
    summary = command(
        "compare", profile, "--steps", "1:2", "--markdown", "-", "--lang", "zh", "--force"
    )
    assert english_in(summary.out) == []


def _texts(block: Any) -> list[str]:
    if isinstance(block, dict):
        return [text for part in block.values() for text in _texts(part)]
    if isinstance(block, list):
        return [text for part in block for text in _texts(part)]
    return [block] if isinstance(block, str) else []


@pytest.mark.parametrize("words", [(), ("compare", "--steps", "1:2")], ids=["export", "compare"])
def test_a_page_is_chinese(command: Command, profile: Path, words: tuple[str, ...]) -> None:
    named = [*words[:1], str(profile), *words[1:]]
    assert command(*named, "--report", "page.html", "--lang", "zh").code == 0
    content = (command.directory / "page.html").read_bytes()
    assert b'<html lang="zh">' in content
    page = read(content)
    texts = re.sub(r"<script>.*?</script>|<style>.*?</style>", "", content.decode(), flags=re.S)
    shown = re.sub(r"<script.*?</script>|<[^>]+>", "\n", texts, flags=re.S)
    assert english_in(shown) == []
    assert english_in("\n".join(_texts(page.blocks))) == []
    script = re.findall(r"(['`])((?:(?!\1).)*)\1", content.decode())
    assert english_in("\n".join(text for _, text in script)) == []


def test_what_is_new_or_gone_is_chinese_on_a_page() -> None:
    with spoken("zh"):
        *_, changes = columns_of_runs(np.array([0, 5]), np.array([5, 0]), ("before", "now"))
    assert changes is not None
    assert changes["values"] == ["新增", "消失"]


def test_json_has_english_keys_and_chinese_sentences(command: Command, profile: Path) -> None:
    english, chinese = (
        json.loads(command(profile, "--verdict", "--json", "--lang", language).out)
        for language in ("en", "zh")
    )
    assert english.keys() == chinese.keys()
    assert english["verdict"]["mean_step"] == chinese["verdict"]["mean_step"]
    assert all(map(CHINESE.search, chinese["sentences"]))
    assert not any(map(CHINESE.search, english["sentences"]))


@pytest.mark.parametrize(
    "build",
    [build_parser, build_compare_parser, build_show_parser, build_open_parser, build_query_parser],
)
def test_help_is_chinese(build: Any) -> None:
    with spoken("zh"):
        assert english_in(build().format_help()) == []


def test_errors_are_chinese(command: Command) -> None:
    for words in (
        ("--nonsense",),
        ("nowhere",),
        ("--verdict", "--json", "-v"),
        ("show", "no.json"),
        ("open", "no.json", "more"),
    ):
        said = command(*words, "--lang", "zh")
        assert said.code
        assert re.match(f"tlexport: [^:]*{CHINESE.pattern}", said.err)
        assert english_in(said.err.replace("tlexport: ", "")) == []


def test_python_says_chinese_only_where_asked(profile: Path, tmp_path: Path) -> None:
    """The keyword is of one call: of the file and the page that it writes, not of its report."""
    report = export(profile, tmp_path / "t.pftrace", report=tmp_path / "t.html", lang="zh")
    assert b'<html lang="zh">' in (tmp_path / "t.html").read_bytes()
    assert CHINESE.search(read_verdict(tmp_path / "t.pftrace").lines[0])
    assert not CHINESE.search("\n".join([*report.verdict.sentences(), *report.lines()]))
    with pytest.raises(UsageError, match="lang: there is no 'fr'"):
        export(profile, tmp_path / "t.pftrace", lang="fr")  # type: ignore[arg-type]
