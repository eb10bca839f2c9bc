"""Proves that the catalogue translates what the program says, and nothing else."""

from __future__ import annotations

import argparse
import ast
import functools
import io
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from timeline.language import asked_language, said, spoken
from timeline.language.catalogue import entries
from timeline.tracks import descriptions

ROOT = Path(__file__).parents[2]
BESIDE = " .,;:()+-"
"""What stands beside the words of a message, and may come from elsewhere."""
PARTS = re.compile(r"\{\}|#|\d+|[:,=]| (?:ns|gb s|in [a-z]+\/s)\b")
"""What is between texts in a string: an expression, a mark, or the unit of a column."""
LONG = 2
"""Number of words from which they may be a part of a string."""
COUNTING = {"add", "add_lines", "leave_out", "Omission"}
"""Functions whose first argument is the reason for what is left out."""
VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG", "LANGUAGE")


def _strings(path: Path) -> Iterator[str]:
    """Yield the strings of a module, with {} for each expression."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )


def _plain(text: str) -> str:
    """Return a text without capitals, line ends, and the marks between words of a name."""
    return " ".join(text.lower().replace("_", " ").split())


@pytest.fixture(scope="module")
def is_said() -> Callable[[str], bool]:
    """Whether the program holds a text, in one string or in several."""
    sources = (ROOT / "timeline").rglob("*.py")
    modules = [path for path in sources if path.parent.name != "language"]
    modules.append(Path(argparse.__file__))
    strings = {_plain(text) for path in modules for text in _strings(path)}
    script = (ROOT / "timeline/reports/html/page.js").read_text("utf-8").lower()
    strings |= {script, *(text for _, text in re.findall(r"(['`])(.*?)\1", script))}
    sql = (ROOT / "timeline/viewer/queries.sql").read_text("utf-8")
    strings |= {sql.lower(), *re.findall("'([^'\n]*)'", sql.lower())}
    every = "\n".join(strings)
    alone = {part.strip(BESIDE) for text in strings for part in PARTS.split(text)}

    @functools.cache
    def is_said(text: str) -> bool:
        text = text.strip(BESIDE)
        words = text.split(" ")
        if text in alone or not re.search("[a-z]", text) or (len(words) >= LONG and text in every):
            return True
        halves = ((" ".join(words[:at]), " ".join(words[at:])) for at in range(1, len(words)))
        return any(is_said(one) and is_said(other) for one, other in halves)

    return is_said


def test_every_text_is_said_somewhere(is_said: Callable[[str], bool]) -> None:
    """A sentence that is reworded in English needs a new translation: its entry is named here."""
    stale = [
        entry.message
        for entry in entries()
        if not all(is_said(_plain(literal)) for literal in entry.literals)
    ]
    assert stale == []


def _reasons(path: Path) -> Iterator[str]:
    """Yield the reasons for what is left out that a module gives as they are."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        reason = getattr(node.args[0], "value", None)
        if name in COUNTING and isinstance(reason, str) and " " in reason:
            yield reason


def test_what_is_left_out_and_what_rows_show_is_chinese() -> None:
    """Even where no run of the tests leaves it out or draws it."""
    modules = (ROOT / "timeline").rglob("*.py")
    texts = {reason for path in modules for reason in _reasons(path)}
    assert len(texts) > 50
    shown = {name: text for name, text in vars(descriptions).items() if name.isupper()}
    texts |= {text for text in shown.values() if str(text).endswith(".")}
    with spoken("zh"):
        left = [text for text in sorted(texts) if not re.search("[\u4e00-\u9fff]", said(text))]
    assert left == []


def test_entries_are_told_apart_by_message_and_context() -> None:
    keys = [(entry.context, entry.message) for entry in entries()]
    assert len(keys) == len(set(keys))
    for entry in entries():
        assert set(entry.kinds) <= set(range(len(entry.literals) - 1)), entry.message


SENTENCES = {
    "Rank 1 computes 53% longer in step 2: without that, the run would be 9% shorter.": (
        "第 2 步中，rank 1 的计算时间长 53%：消除后，整个运行可缩短 9%。"
    ),
    "Step (3.74 ms): compute 56%, exposed communication 23% (waiting 7, transfer 17), idle 1%. "
    "Mean of 2 ranks and 3 steps.": (
        "单步（3.74 ms）：计算 56%，未被掩盖的通信 23%（等待 7，传输 17），空闲 1%。"
        "以上为 2 张卡、3 步的均值。"
    ),
    "2. The hosts of both ranks wait up to 1.17 ms of every 3.74 ms for data: 20% to win, 19% once "
    "those above are fixed; try more workers of the DataLoader, or less work for each sample.": (
        "2. 两张卡的 Host 每 3.74 ms 中至多有 1.17 ms 在等待数据：可缩短 20%，"
        "解决以上问题后为 19%；可尝试增加 DataLoader 的 worker 数，或减少每个样本的处理量。"
    ),
    "Idle 44.05 ms: 21.05 ms host busy elsewhere (empty_tensor in main.py(354): train and others "
    "2.63 ms), 7.68 ms between tasks (at least 87.5 us each).": (
        "空闲 44.05 ms：Host 忙于其他工作 21.05 ms（main.py(354): train 等处的 empty_tensor "
        "2.63 ms），任务之间 7.68 ms（每次至少 87.5 us）。"
    ),
    "Slowest step: 2 (4.04 ms on rank 0; median 3.59 ms): 432.7 us more idle (waiting for data), "
    "315.3 us more waiting.": (
        "最慢的步：第 2 步（rank 0 上 4.04 ms；中位数 3.59 ms）：空闲（等待数据）多 432.7 us，"
        "等待多 315.3 us。"
    ),
    "rank 0 waits 22.23 ms of every 38.11 ms for data: at most 58% to win": (
        "rank 0 每 38.11 ms 中有 22.23 ms 在等待数据：至多可缩短 58%"
    ),
    "free 3%, rank 0 and both ranks": "空闲（Free）3%，rank 0 和两张卡",
    "2 runs lie in a; the newest is read (2023-11-02 20:41:02 UTC, ranks 0-3). Not read: "
    "2023-11-02 20:07:09 UTC, ranks 0-3: put b, c and 2 more of d into a directory of their own; "
    "2 more: tlexport a --list.": (
        "a 中有 2 次运行；读取最新的一次（2023-11-02 20:41:02 UTC，rank 0-3）。未读取："
        "2023-11-02 20:07:09 UTC，rank 0-3：请将 d 中的 b, c 等（另有 2 个）移到单独的目录；"
        "另有 2 次：tlexport a --list。"
    ),
    "new: ranks 0,1: 6 kernels without a row in kernel_details.csv count as computing, as the "
    "trace's own Overlap Analysis counts them.": (
        "新运行：rank 0,1：有 6 个算子在 kernel_details.csv 中没有对应的行，"
        "按 trace 自身的 Overlap Analysis 计入计算。"
    ),
    "Step -97.1% (-151 ms): exposed waiting -95.7 ms (gone), idle -91% (-42.8 ms).": (
        "单步耗时 -97.1%（-151 ms）：未被掩盖的等待 -95.7 ms（消失），空闲 -91%（-42.8 ms）。"
    ),
    "base: rank 1 is in this run only, and in its means.": (
        "基线：rank 1 只在本次运行中，计入其均值。"
    ),
    "base: 3 runs lie in a; the newest is read (2023-11-02 20:41:02 UTC, ranks 0-3). Not read: "
    "2023-11-02 20:07:09 UTC, ranks 0-3: put b of d into a directory of their own; 2023-11-02 "
    "20:02:44 UTC, ranks 0-3: put c of d into a directory of their own.": (
        "基线：a 中有 3 次运行；读取最新的一次（2023-11-02 20:41:02 UTC，rank 0-3）。未读取："
        "2023-11-02 20:07:09 UTC，rank 0-3：请将 d 中的 b 移到单独的目录；"
        "2023-11-02 20:02:44 UTC，rank 0-3：请将 d 中的 c 移到单独的目录。"
    ),
    "rank 1: 36 records, kernel_details.csv: rows without a start and a duration, the first at "
    "line 4": "rank 1：36 条记录，kernel_details.csv：没有开始时间和时长的行，首个位于第 4 行",
    "rank 0: free time by the inner rule, as Overlap Analysis of trace_view.json tells.": (
        "rank 0：空闲（Free）按 inner 口径，依据 trace_view.json 的 Overlap Analysis。"
    ),
    "not used of ranks 0,1: op_summary.csv (the same records in another form), table CCU of a.db "
    "(tasks of CCUs), 3 more in --json": (
        "rank 0,1 中未使用：op_summary.csv（同样记录的另一种形式）, a.db 的表 CCU（CCU 的任务）, "
        "另有 3 个见 --json"
    ),
    "42 more rows, all shorter, in the JSON report (--json).": (
        "另有 42 行（均更短）见 JSON 报告（--json）。"
    ),
    "Port 9001 of this machine cannot be used: Address already in use. End what holds it, such as "
    "another --open or trace_processor, and run this again, or drag a.json into a Perfetto UI.": (
        "无法使用本机端口 9001：Address already in use。请结束占用它的程序（如另一个 --open 或 "
        "trace_processor）后重新运行，或将 a.json 拖入 Perfetto UI。"
    ),
    "Stopped. a.json is written; to see it, drag a.json into https://ui.perfetto.dev.": (
        "已停止。a.json 已写入；如要查看，请将 a.json 拖入 https://ui.perfetto.dev。"
    ),
    "waits_for_data takes 5% of computing; made 10% faster, it would make the run 1% shorter.": (
        "waits_for_data 占计算时间的 5%；若提速 10%，整个运行可缩短 1%。"
    ),
}


@pytest.mark.parametrize(("english", "chinese"), SENTENCES.items())
def test_sentences_are_translated_with_their_parts(english: str, chinese: str) -> None:
    with spoken("zh"):
        assert said(english) == chinese
        assert said(chinese) == chinese
    assert said(english) == english


@pytest.mark.parametrize(
    "name", ["MatMul", "Default/network/Conv2D-op12", "idle_kernel", "/runs/Step 3 (slow)", "a, b"]
)
def test_names_stay_as_they_are(name: str) -> None:
    with spoken("zh"):
        assert said(name) == said(name, "cell") == name


def test_what_looks_like_many_sentences_is_given_up() -> None:
    """A name may hold words of messages over and over; it stays, soon."""
    began_s = time.process_time()
    with spoken("zh"):
        for again in ("a is 5 ns in c and 4 ns here: ", "1 x (y), ", "(a, b) in c and others, "):
            name = f"rank 1: {again * 200}"
            assert said(name) == name
    assert time.process_time() - began_s < 10


def test_the_language_is_that_of_the_option_else_of_the_locale(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert asked_language([]) == "en"
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert asked_language(["--list"]) == "zh"
    assert asked_language(["--lang", "en"]) == asked_language(["--lang=en"]) == "en"
    with monkeypatch.context() as ascii_only:
        ascii_only.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
        assert (asked_language([]), asked_language(["--lang", "zh"])) == ("en", "zh")
    assert asked_language(["--lang", "en", "--lang=zh"]) == "zh"
    for listed, spoken_first in (("en_US:zh_CN", "en"), ("fr:zh_CN:en", "zh"), ("fr", "en")):
        monkeypatch.setenv("LANGUAGE", listed)
        assert asked_language([]) == spoken_first
    monkeypatch.setenv("LANGUAGE", "zh_CN:en")
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    assert asked_language([]) == "zh"
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert asked_language([]) == "en"
    assert asked_language(["profile", "--lang", "zh"]) == "zh"
