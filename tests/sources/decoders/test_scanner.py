"""Proves that the compiled scanner reads what the decoder reads, whatever a file holds."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.examples import at_most
from tests.support.other_readings import in_small_parts
from timeline.columns.strings import StringPool
from timeline.errors import SourceError
from timeline.layers import Layer
from timeline.records.tables import FlowEnd, Records
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS
from timeline.sources.ascend_trace.reader import TraceFiles, read_trace
from timeline.sources.ascend_trace.tables import AscendArgs, ascend_format
from timeline.sources.decoders import json_events
from timeline.sources.decoders.json_events import EventBatch, Scanner
from timeline.sources.kineto import source as kineto
from timeline.sources.kineto.header import KinetoHeader
from timeline.sources.kineto.tables import KinetoArgs
from timeline.sources.mindspore import display
from timeline.sources.source import ReadRequest

pytestmark = pytest.mark.skipif(Scanner is None, reason="the package was built without a compiler")

EXAMPLES = int(os.environ.get("SCANNER_EXAMPLES", at_most(120)))
"""Files that each test makes up."""
Read = Counter[Any] | str
"""The rows of all tables with what they are, or why a file cannot be read."""


def read(path: Path, layers: frozenset[Layer], *, only_device: bool = False) -> Read:
    files = TraceFiles((path,), device=3, only_device=only_device)
    every_arg = layers is DETAIL_LAYERS
    try:
        records = read_trace(
            files, 0, StringPool(), ReadRequest(layers=layers, every_arg=every_arg)
        )
    except SourceError as error:
        return str(error)
    return rows_of(records)


def rows_of(records: Records) -> Counter[Any]:
    """What was read, whatever the order of its rows and the codes of its strings."""
    ends = {
        FlowEnd.TASK: spelled(records.tasks, records.strings),
        FlowEnd.PLANE: spelled(records.planes, records.strings),
        FlowEnd.OP: spelled(records.ops, records.strings),
        FlowEnd.HOST: spelled(records.host, records.strings),
    }
    series = spelled(records.series, records.strings)
    flows = records.flows
    arrows = zip(
        [records.strings[code] for code in flows.category.tolist()],
        [
            (ends[FlowEnd(kind)][row], ends[FlowEnd(other)][at])
            for kind, row, other, at in zip(
                flows.source_kind.tolist(),
                flows.source_row.tolist(),
                flows.target_kind.tolist(),
                flows.target_row.tolist(),
                strict=True,
            )
        ],
        strict=True,
    )
    samples = zip(
        records.samples.time_ns.tolist(),
        [series[row] for row in records.samples.series.tolist()],
        map(repr, records.samples.value.tolist()),
        strict=True,
    )
    found: Counter[Any] = Counter()
    for kind, rows in (
        *ends.items(),
        ("steps", spelled(records.steps, records.strings)),
        ("parts", spelled(records.parts, records.strings)),
        ("samples", samples),
        ("arrows", arrows),
        ("omissions", records.omissions),
    ):
        found.update((kind, row) for row in rows)
    return found


def spelled(table: Any, strings: StringPool) -> list[tuple[Any, ...]]:
    columns = []
    for field in fields(table):
        values = getattr(table, field.name)
        if values.dtype == np.int32:
            columns.append([strings[code] for code in values.tolist()])
        else:
            columns.append([repr(value) for value in values.tolist()])
    return list(zip(*columns, strict=True))


def check_alike(path: Path, monkeypatch: pytest.MonkeyPatch, **how: bool) -> None:
    """Read a file both ways."""
    for layers in (DETAIL_LAYERS, SUMMARY_LAYERS):
        scanned = read(path, layers, **how)
        with monkeypatch.context() as patch:
            patch.setattr(json_events, "Scanner", None)
            decoded = read(path, layers, **how)
        assert scanned == decoded


# -- events that are made up -----------------------------------------------------------------

NUMBERS = st.one_of(
    st.integers(-5, 40),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1e7).map(lambda value: round(value, 3)),
)
TEXTS = st.one_of(
    st.sampled_from(["", "N/A", "AI_CORE", "007", "-0", "-3", "18446744073709551615", 'a"b\\c\n']),
    st.integers(0, 10**19).map(str),
    st.text(max_size=12),
)
VALUES = st.one_of(NUMBERS, TEXTS, st.none())
ODD_VALUES: st.SearchStrategy[Any] = st.one_of(
    VALUES, st.booleans(), st.lists(NUMBERS, max_size=2), st.just({"a": {}})
)
TIMES = st.one_of(
    st.integers(0, 10**16),
    st.decimals(0, 9 * 10**15, places=3, allow_nan=False).map(lambda time: f"{time:f}"),
    st.decimals(0, 10**6, places=17, allow_nan=False).map(lambda time: f"{time:f}"),
    st.floats(0, 1e13),
    st.sampled_from(["", " 1", "1e3", "-4", ".5", "5.", "1_0", None, 9 * 10**15, 10**17]),
)
PIDS = st.sampled_from([3, "3", 3.0, 31, 35, "CANN", 4, -1, 2**70])
TIDS = st.sampled_from([0, 1, 2, "2", 1.5, 10, 7])
ARGS = st.dictionaries(
    st.sampled_from([*(arg.encode_name for arg in msgspec.structs.fields(AscendArgs)), "other"]),
    VALUES,
    max_size=6,
)
NAMES = st.one_of(
    st.sampled_from(["MatMul", "hcom_allReduce__1", "ProfilerStep#7", "Iteration 2", "Reduce_1_0"]),
    TEXTS,
)
PROCESSES = ("Ascend Hardware", "HCCL", "Communication", "CANN", "Step Trace", "Overlap Analysis")
METADATA = st.one_of(
    st.builds(
        lambda pid, name: {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}},
        PIDS,
        st.sampled_from(PROCESSES),
    ),
    st.builds(
        lambda pid, tid, name: {
            "ph": "M",
            "name": "thread_name",
            "pid": pid,
            "tid": tid,
            "args": {"name": name},
        },
        PIDS,
        TIDS,
        st.sampled_from(
            ["Stream 2", "Plane 1", "Group 0 Communication", "Step Trace(Model ID:4)", "x", ""]
        ),
    ),
)


def events_of(args: st.SearchStrategy[Any], field: Callable[..., Any]) -> st.SearchStrategy[Any]:
    """Events of all phases; `field` may take anything in the place of what belongs there."""
    return st.one_of(
        METADATA,
        st.fixed_dictionaries(
            {"ph": st.just("X"), "name": field(NAMES), "pid": field(PIDS), "tid": field(TIDS)},
            optional={
                "ts": TIMES,
                "dur": TIMES,
                "cat": field(NAMES),
                "args": args,
                "x": ODD_VALUES,
            },
        ),
        st.fixed_dictionaries(
            {"name": field(NAMES), "ph": st.just("C")},
            optional={
                "pid": field(PIDS),
                "ts": TIMES,
                "args": st.dictionaries(
                    st.sampled_from(["value", "Read(MB/s)", "core_id", 'a"b']), ODD_VALUES
                ),
            },
        ),
        st.fixed_dictionaries(
            {
                "ph": st.sampled_from("stf"),
                "id": st.one_of(st.integers(-1, 4), st.integers(0, 2**66), TEXTS),
                "cat": st.sampled_from(["HostToDevice", "async_npu", "Data_aug Bound"]),
            },
            optional={"pid": field(PIDS), "tid": field(TIDS), "ts": TIMES, "name": ODD_VALUES},
        ),
        st.fixed_dictionaries({"ph": st.sampled_from(["i", "b", "XX", ""])}),
    )


PLAIN = events_of(st.one_of(ARGS, st.none()), lambda usual: usual)
ODD = events_of(st.one_of(ARGS, ODD_VALUES), lambda usual: st.one_of(usual, ODD_VALUES))
LAYOUTS = st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", " : ")])

FILES = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture(autouse=True)
def small_blocks() -> Iterator[None]:
    """Have even small files read in several blocks, and made into tables in several turns."""
    with in_small_parts(held_events=7, block_bytes=700):
        yield


@FILES
@given(st.lists(PLAIN, min_size=1, max_size=20), LAYOUTS, st.booleans(), st.booleans())
def test_files_read_alike(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    events: list[Any],
    separators: tuple[str, str],
    ascii_only: bool,
    only_device: bool,
) -> None:
    """Whatever values events have, and however they are laid out."""
    path = tmp_path / "trace_view.json"
    made = json.dumps(events, separators=separators, ensure_ascii=ascii_only)
    path.write_bytes(made.encode("utf-8", errors="surrogatepass"))
    check_alike(path, monkeypatch, only_device=only_device)


@FILES
@given(st.lists(st.one_of(PLAIN, ODD), min_size=1, max_size=12))
def test_files_with_values_of_other_types_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Any]
) -> None:
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ns"}))
    check_alike(path, monkeypatch)


@FILES
@given(
    st.lists(PLAIN, min_size=3, max_size=12),
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.binary(max_size=3)), max_size=3
    ),
    st.integers(0, 10**6),
)
def test_damaged_files_read_alike(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    events: list[Any],
    wounds: list[tuple[int, int, bytes]],
    end: int,
) -> None:
    """Bytes are replaced, lost or added anywhere, and the file may break off."""
    text = bytearray(json.dumps(events).encode())
    for place, lost, added in wounds:
        at = place % len(text)
        text[at : at + lost] = added
    path = tmp_path / "trace_view.json"
    path.write_bytes(text[: len(text) - end % (2 * len(text))] if end % 3 == 0 else text)
    check_alike(path, monkeypatch)


@pytest.mark.parametrize(
    "event",
    [
        b'{"ph": "C", "name": "a\x80", "pid": 1, "ts": 1, "args": {"b": 1}}',
        b'{"ph": "C", "name": "a", "pid": "\xff", "ts": 1, "args": {"b": 1}}',
        b'{"ph": "C", "name": "a", "pid": 1, "ts": 1, "args": {"\xc3": 1}}',
        '{"ph": "C", "name": "\N{CJK UNIFIED IDEOGRAPH-4E2D}", "ts": 1, "args": {"b": 1}}'.encode(),
    ],
)
def test_counters_that_nobody_asks_for_are_told_of_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, event: bytes
) -> None:
    """Text that is not UTF-8 is damage, also where it is stepped over."""
    path = tmp_path / "trace_view.json"
    rest = [b'{"ph": "X", "name": "a", "ts": 1, "dur": 2}'] * 50  # which several blocks hold
    path.write_bytes(b"[" + b", ".join([event, *rest, event]) + b"]")
    check_alike(path, monkeypatch)


SPELLINGS = (
    '{"ph": "X", "ph": "C", "name": "a"}',
    '{"ph": "X", "name": "a", "args": {"Task Id": 1}, "args": {"Task Id": 2}}',
    '{"ph": "X", "name": "a", "name": "b", "args": {"Task Id": 1, "Task Id": 2}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": 1, "Task Id": null}}',
    '{"ph": "X", "name": "a", "args": {"Task\\u0020Id": 1}}',
    '{"\\u0070h": "X", "name": "a"}',
    '{"ph": "\\u0058", "name": "a"}',
    '{"ph": "X", "name": "\\ud83d\\ude00 \\ud83d"}',
    '{"ph": "X", "name": "\\u00e9\\/\\b"}',
    '{"ph": "X", "name": "a", "args": {"other": "\\ud83d", "Task Id": 1}}',
    '{"ph": "X", "name": "a", "args": {"other": "\\ude00\\ud83d", "Task Id": 1}}',
    '{"ph": "X", "name": "a", "args": {"other": "\\ud83d\\u0041", "Task Id": 1}}',
    '{"ph": "X", "name": "a", "args": {"other": "\\ude00\\udc00", "Task Id": 1}}',
    '{"ph": "X", "name": "a", "args": {"other": "\\ud83d\\n\\ude00", "Task Id": 1}}',
    '{"ph": "X", "name": "a", "args": {"other": "\\uD83D\\uDE00\\ud7ff", "Task Id": 1}}',
    '{"ph": "X", "name": "a", "args": {"other": "\\ud83d\\ude0x", "Task Id": 1}}',
    '{"ph": "X", "name": "a", "args": {"other": "\\x", "Task Id": 1}}',
    '{"ph": "X", "name": "a\x01"}',
    '{"ph": "X", "name": "a", "args": {"other": "a\x01"}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": 01}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": 1.}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": .5}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": +1}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": -}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": 1e}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": 1e999}}',
    '{"ph": "X", "name": "a", "args": {"bandwidth(GB/s)": 1e400}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": 1e3, "bandwidth(GB/s)": -0.0}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": -0, "bandwidth(GB/s)": 4.35}}',
    '{"ph": "X", "name": "a", "args": {"bandwidth(GB/s)": 123456789012345678901234567890}}',
    '{"ph": "X", "name": "a", "args": {"bandwidth(GB/s)": 0.1000000000000000055511151231257827}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": NaN}}',
    '{"ph": "X", "name": "a", "args": {"Task Id": tru}}',
    '{"ph": "X", "name": "a", "args": {"other": nulL}}',
    '{"ph": "X", "name": "a", "args": {"other": [1, 2,]}}',
    '{"ph": "X", "name": "a", "args": {"other": {"a": 1,}}}',
    '{"ph": "X", "name": "a", "args": {"other": {1: 2}}}',
    '{"ph": "X", "name": "a", "args": {"other": ' + "[" * 70 + "]" * 70 + "}}",
    '{"ph": "X", "name": "a", "args": [1]}',
    '{"ph": "C", "name": "a", "args": [1]}',
    '{"ph": "C", "name": "a", "args": {"x": 1, "x": 2}}',
    '{"ph": "C", "name": "a", "args": {"x": true, "y_id": false, "z": "5", "u": null}}',
    '{"ph": "C", "name": "a", "args": {"x": {"y": 1}, "y_id": [1], "z": 1e308}}',
    '{"args": {"Task Id": 5}, "name": "a", "tid": 2, "pid": 3, "ts": 4, "dur": 1, "ph": "X"}',
    '{"args": {"x": 5}, "name": "a", "pid": 3, "ts": 4, "ph": "C"}',
    '{"ph": "X", "name": "a" "pid": 3}',
    '{"ph": "X", "name": "a",, "pid": 3}',
    '{"ph": "X"; "name": "a"}',
    '{"name": "a", "pid": 3}',
    '{"ph": null}',
    '{"ph": 5}',
    '{"ph": "\x01"}',
    '{"ph": "\\"}',
    '{"ph": """}',
    '{"ph": "\\"", "name": "a"}',
    "{}",
    "[]",
    "5",
)


@pytest.mark.sweep
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("at", [0, 2, 20])
def test_odd_spellings_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str, at: int
) -> None:
    """Among plain events, at the start, inside and at the end of a file."""
    plain = '{"ph": "X", "name": "t", "pid": 3, "tid": 2, "ts": "5.1", "dur": 2, "args": {}}'
    named = json.dumps(
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "Ascend Hardware"}}
    )
    events = [named, *[plain] * 19]  # which several blocks hold: the last one is decoded
    events.insert(at, spelling)
    path = tmp_path / "trace_view.json"
    path.write_bytes(("[" + ", ".join(events) + "]").encode("utf-8", "surrogatepass"))
    check_alike(path, monkeypatch)


def test_text_that_is_not_utf8_reads_alike_wherever_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = b'{"ph": "X", "name": "op\xff", "pid": 3, "tid": 2, "ts": 5, "dur": 2}'
    path = tmp_path / "trace_view.json"
    path.write_bytes(b"[" + b", ".join([event] * 40) + b"]")
    check_alike(path, monkeypatch)


def test_args_read_alike_in_any_order_and_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that are long, begin alike, come once or again, and very many; behind phases or not."""
    known = ["Task Id", "Task Type", "Stream Id", "connection_id"]
    others = ["Task", "Task Id ", "k" * 30, "k" * 31, "k" * 40, *(f"key {n}" for n in range(600))]
    random = Random(7)
    events = []
    for n in range(500):
        phase = random.choice("XXXCCCist")
        event = {"ph": phase, "name": "t", "pid": 3, "tid": 2, "ts": n, "id": n}
        if phase == "X" or n % 9 == 0:
            event["dur"] = 1
        keys = random.sample([*known * 2, *others[:5], *others[5 + n : 45 + n]], 6)
        args = {key: random.choice([n, str(n), 1.5 * n]) for key in keys}
        if n % 7 == 0:
            args["Task Type"] = random.choice([None, [n], {"a": n}])
        event["args"] = args
        order = list(event)
        if n % 4:
            random.shuffle(order)
        events.append({key: event[key] for key in order})
    named = {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "Ascend Hardware"}}
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([named, *events]))
    check_alike(path, monkeypatch)


LIKE_EVENTS = [
    {"ph": "X", "name": "a", "pid": 3, "tid": 2, "ts": n, "dur": 1, "args": {"Task Id": n, "b": 1}}
    for n in range(3)
] + [{"ph": "C", "name": "c", "pid": 3, "ts": n, "args": {"x": n, "y": 1}} for n in range(3)]


@pytest.mark.sweep
@pytest.mark.parametrize("replacement", ["{", "}", '"', "", ",", ":", "  ", "\v", "\\"])
def test_what_stands_between_values_is_looked_at_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replacement: str
) -> None:
    """Events that are like those before, but for one character between two values."""
    path = tmp_path / "trace_view.json"
    texts = [json.dumps(event) for event in LIKE_EVENTS]
    behind = ", ".join(texts[:1] * 15)  # which several blocks hold: the last one is decoded
    found = Counter[bool]()
    for like in (1, 4):
        places = [at for at, byte in enumerate(texts[like]) if byte in '{},: "']
        for at in places:
            other = texts[like][:at] + replacement + texts[like][at + 1 :]
            before = ", ".join(texts[like - 1 : like])
            path.write_text(f"[{before}, {other}, {behind}]")
            check_alike(path, monkeypatch)
            found[decodes(path.read_bytes())] += 1
    assert found[False] or replacement == "  "


def decodes(text: bytes) -> bool:
    """Whether a text is JSON."""
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@FILES
@given(
    st.lists(
        st.tuples(st.sampled_from(LIKE_EVENTS), st.lists(st.integers(0, 3), max_size=40)),
        min_size=2,
        max_size=12,
    )
)
def test_white_space_anywhere_reads_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[tuple[Any, list[int]]]
) -> None:
    """More or less of it than in events before, or more than is compared at once."""
    texts = []
    for event, widths in events:
        text, spaces = "", iter(widths)
        for byte in json.dumps(event):
            text += byte
            if byte in "{,:}":
                text += ("", " ", "\n\t", " " * 40)[next(spaces, 0)]
        texts.append(text)
    path = tmp_path / "trace_view.json"
    path.write_text("[" + ", ".join(texts) + "]")
    check_alike(path, monkeypatch)


@pytest.mark.sweep
@pytest.mark.parametrize("first", [1, 2, 3])
def test_a_file_that_breaks_off_anywhere_reads_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    events = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "Ascend Hardware"}},
        {"ph": "X", "name": 'a"\\\u00e9', "pid": 3, "tid": 2, "ts": "5.125", "dur": 2.5e-1},
        {"ph": "C", "name": "c", "pid": 3, "ts": 1, "args": {"x": -1.5, "y": "z"}},
        {"ph": "s", "id": "77", "cat": "HostToDevice", "pid": 3, "tid": 2, "ts": "5.125"},
        {"ph": "X", "name": "b", "pid": 3, "tid": 2, "ts": 9, "dur": 1, "args": {"Task Id": 7}},
    ]
    text = json.dumps(events).encode()
    path = tmp_path / "trace_view.json"
    for end in range(first, len(text), 3):
        path.write_bytes(text[:end])
        check_alike(path, monkeypatch)


# -- other formats ---------------------------------------------------------------------------

KINETO_ARGS = st.dictionaries(
    st.sampled_from(
        [*(arg.encode_name for arg in msgspec.structs.fields(KinetoArgs)), "Device Id", "other"]
    ),
    ODD_VALUES,
    max_size=6,
)
CATEGORIES = st.sampled_from(
    ["kernel", "gpu_memcpy", "cuda_runtime", "cpu_op", "Operator", "user_annotation", "what", ""]
)
MEMORY = st.fixed_dictionaries(
    {"ph": st.just("i"), "name": st.sampled_from(["[memory]", "Record Window End"])},
    optional={
        "cat": st.sampled_from(["", "cpu_op"]),
        "pid": ODD_VALUES,
        "tid": ODD_VALUES,
        "ts": TIMES,
        "args": st.dictionaries(
            st.sampled_from(["Device Type", "Device Id", "Total Allocated", "Total Reserved"]),
            st.one_of(st.integers(-1, 3), st.floats(0, 9), VALUES),
        ),
    },
)
KINETO_EVENTS = st.one_of(
    PLAIN,
    MEMORY,
    st.fixed_dictionaries(
        {"ph": st.just("X"), "name": NAMES, "pid": PIDS, "tid": TIDS, "cat": CATEGORIES},
        optional={"ts": TIMES, "dur": TIMES, "args": KINETO_ARGS},
    ),
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from("sf"),
            "id": st.one_of(st.integers(-1, 4), st.integers(2**62, 2**64), TEXTS),
            "cat": st.sampled_from(["ac2g", "fwdbwd"]),
            "pid": PIDS,
            "tid": TIDS,
            "ts": TIMES,
        }
    ),
)


def kineto_rows(path: Path) -> Read:
    wanted = ReadRequest(layers=DETAIL_LAYERS, every_arg=True)
    try:
        return rows_of(kineto.read_kineto(path, 0, KinetoHeader(None, 0), StringPool(), wanted))
    except SourceError as error:
        return str(error)


def display_rows(path: Path) -> Read:
    strings = StringPool()
    try:
        found = display.read_display(path, strings, 0)
    except SourceError as error:
        return str(error)
    rows: Counter[Any] = Counter(found.omissions)
    for table in (found.tasks, found.ops, found.host, found.steps):
        rows.update((type(table), row) for row in spelled(table, strings))
    return rows


def check_formats_alike(
    path: Path, rows: Callable[[Path], Read], monkeypatch: pytest.MonkeyPatch
) -> None:
    scanned = rows(path)
    with monkeypatch.context() as patch:
        patch.setattr(json_events, "Scanner", None)
        decoded = rows(path)
    assert scanned == decoded


def count_decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of events that are left to the decoder each time, which the list gets."""
    decoded = []
    accepted = json_events._Blocks._accepted

    def counting(self: Any, piece: Any) -> Any:
        decoded.append(len(piece.events))
        return accepted(self, piece)

    monkeypatch.setattr(json_events._Blocks, "_accepted", counting)
    return decoded


@FILES
@given(st.lists(KINETO_EVENTS, min_size=1, max_size=12))
def test_traces_of_pytorch_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Any]
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events))
    check_formats_alike(path, kineto_rows, monkeypatch)


def test_texts_that_must_be_mended_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing of them is left to the decoder, as nothing of whole ones is."""
    event = (
        '{"ph": "X", "name": "k", "cat": "kernel", "pid": 0, "tid": 7, "ts": 5, "dur": 1, '
        '"args": {"stream": 7, "blocks per SM": %s}}'
    )
    path = tmp_path / "trace.json"
    path.write_text("[" + ", ".join(event % one for one in ["1.5", "inf", "2", "inf"] * 20) + "]")
    check_formats_alike(path, kineto_rows, monkeypatch)
    decoded = count_decoded(monkeypatch)
    kineto_rows(path)
    assert decoded == [0]


DISPLAY_EVENTS = st.fixed_dictionaries(
    {
        "ph": st.sampled_from(["X", "X", "X", "M", "s", "C", "i"]),
        "name": NAMES,
        "pid": st.sampled_from([0, 9000, 10000, 11000, "11000", 12000, 1.0]),
        "tid": st.sampled_from(["Steps", "100003", 5, "Stream #3", 0, "Scope Name"]),
    },
    optional={
        "id": st.integers(0, 3),
        "ts": TIMES,
        "dur": TIMES,
        "args": st.one_of(
            st.dictionaries(
                st.sampled_from(["fullname", "type", "input_0", "output_0"]),
                st.one_of(TEXTS, st.just({"shape": [1, 2], "data_type": "int"}), ODD_VALUES),
            ),
            ODD_VALUES,
        ),
    },
)


@FILES
@given(st.lists(DISPLAY_EVENTS, min_size=1, max_size=12))
def test_displays_read_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: list[Any]
) -> None:
    path = tmp_path / "timeline_display_0.json"
    path.write_text(json.dumps(events))
    check_formats_alike(path, display_rows, monkeypatch)


# -- what it is for --------------------------------------------------------------------------


PLAIN_EVENTS = (
    {"ph": "X", "name": "a", "pid": 3, "tid": 2, "ts": "1.5", "dur": 1},
    {"ph": "X", "name": "a", "ts": 1, "args": {"k" * 15: 1, "k" * 30: "a", "1" * 70: 2, "": 3}},
    {"ph": "C", "name": "a", "pid": 3, "ts": "1.5", "args": {"a": 1, "k" * 29: 2, "b": 3}},
    {"args": {"Task Id": 1}, "ts": 1, "pid": 3, "name": "a", "dur": 1, "ph": "X"},
)


@pytest.mark.parametrize("event", PLAIN_EVENTS)
@pytest.mark.parametrize("indent", [None, 4, 40])
@example(1)
@given(count=st.integers(1, 400))
def test_the_scanner_reads_the_last_event_where_the_list_ends(
    event: Any, indent: int | None, count: int
) -> None:
    """Only an event before another one, or before the end of the list, is known to be whole."""
    text = json.dumps([event] * count, indent=indent)[1:].lstrip().encode()
    scanned = EventBatch(ascend_format(), StringPool(), counters=True).scan(text)
    assert scanned is not None
    events, used = scanned
    assert len(events) == count
    assert text[used:] == b"]"
    cut = text.removesuffix(b"]")
    scanned = EventBatch(ascend_format(), StringPool(), counters=True).scan(cut)
    if count == 1:
        assert scanned is None
    else:
        assert scanned is not None
        events, used = scanned
        assert len(events) == count - 1
        assert json.loads(b"[" + cut[used:] + b"]") == [event]


def test_no_event_of_a_plain_file_is_left_to_the_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded = count_decoded(monkeypatch)
    event = {"ph": "X", "name": "a", "pid": 3, "tid": 2, "ts": "1.5", "dur": 1, "args": {"x": []}}
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps([event] * 500))
    found = read(path, DETAIL_LAYERS)
    assert not isinstance(found, str)
    assert sum(found.values()) == 500
    assert decoded == [0]
