"""Proves with the real trace processor that every format shows exactly what a profile holds."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import zlib
from collections import Counter as Multiset
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from expected_picture import ALL_RANKS, STEPS, Counter, ExpectedPicture, Shown, natural
from loaded_picture import LoadedPicture
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos
from perfetto_sql import Row, TraceProcessor
from profile_shelf import LAYOUTS, Profile, ProfileShelf

from timeline.export import Args, ExportOptions, export
from timeline.records.tables import Records
from timeline.records.valid import valid
from timeline.selection import DETAIL_LAYERS, SUMMARY_LAYERS, Kind, Selection
from timeline.sources.discovery import discover

FORMATS = (".pftrace", ".pftrace.gz", ".json", ".json.gz")
KINDS = tuple(kind.value for kind in Kind)
RUN: dict[str, Any] = {"planes": 12, "ops_per_step": 24}
"""Twelve planes, so that an order by text would differ from one by number."""


@dataclass(frozen=True)
class Drawing:
    """An export, loaded, beside what it should show."""

    file: Path
    loaded: LoadedPicture
    expected: ExpectedPicture

    @property
    def is_json(self) -> bool:
        return self.loaded.is_json

    @property
    def content(self) -> bytes:
        """The bytes of the file, unpacked."""
        data = self.file.read_bytes()
        return gzip.decompress(data) if self.file.suffix == ".gz" else data

    def rows(self, sql: str) -> list[Row]:
        return self.loaded.processor.rows(sql)


def draw(profile: Profile, layout: str, kind: Kind, target: Path, **options: Any) -> Drawing:
    """Export a profile and load the result."""
    layers = SUMMARY_LAYERS if kind is Kind.SUMMARY else DETAIL_LAYERS
    export(
        profile.path,
        Selection(layers=layers),
        ExportOptions(kind=kind, output=target, force=True, **options),
    )
    expected = ExpectedPicture(layout, profile.run, records_of(profile.path), kind)
    is_json = ".json" in target.suffixes
    processor = TraceProcessor.load(target.read_bytes())
    zero_ns = expected.first_ns() if is_json else 0
    return Drawing(target, LoadedPicture(processor, is_json, zero_ns), expected)


def records_of(path: Path) -> dict[int, Records]:
    """What the readers find, by rank."""
    return {
        source.identity.rank: valid(source.read(Selection(layers=DETAIL_LAYERS), DETAIL_LAYERS))
        for source in discover(path).sources
    }


@pytest.fixture(
    scope="module",
    params=[(layout, kind, suffix) for layout in LAYOUTS for kind in Kind for suffix in FORMATS],
    ids=lambda param: f"{param[0]}-{param[1].value}{param[2]}",
)
def drawing(
    request: pytest.FixtureRequest, shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory
) -> Drawing:
    """An export with all args of one layout, in one kind and format."""
    layout, kind, suffix = request.param
    target = tmp_path_factory.mktemp("drawing") / f"timeline{suffix}"
    return draw(shelf.get(layout, **RUN), layout, kind, target, args=Args.ALL)


def same(found: Iterable[Any], wanted: Iterable[Any]) -> None:
    """Both hold the same things equally often; a failure names some that only one of them holds."""
    have, want = Multiset(found), Multiset(wanted)
    assert list((have - want).items())[:5] == list((want - have).items())[:5]
    assert have == want


def test_nothing_is_lost_or_skipped_on_import(drawing: Drawing) -> None:
    assert drawing.loaded.processor.import_errors() == []
    counted = dict(
        drawing.rows(
            "SELECT name, value FROM stats WHERE name IN"
            " ('track_event_tokenizer_errors', 'tokenizer_skipped_packets',"
            " 'slice_drop_overlapping_complete_event', 'json_tokenizer_failure')"
        )
    )
    assert counted["track_event_tokenizer_errors"] == 0
    assert counted["tokenizer_skipped_packets"] == 0
    assert not any(counted.values())


def test_every_slice_has_an_end(drawing: Drawing) -> None:
    assert drawing.rows("SELECT count(*) FROM slice WHERE dur < 0") == [(0,)]


def test_slices_and_their_args_equal_the_records(drawing: Drawing) -> None:
    """Rank, layer, row, start, length, name and every arg by key, to the nanosecond."""
    same(drawing.loaded.by_id.values(), drawn(drawing, drawing.expected.slices()))


def drawn(drawing: Drawing, slices: Iterable[Shown]) -> Iterator[Shown]:
    for one in slices:
        args = (arg.as_drawn(is_json=drawing.is_json) for arg in one.args)
        yield one._replace(args=tuple(sorted(args)))


def test_arrows_join_what_the_records_join(drawing: Drawing) -> None:
    wanted = drawing.expected.arrows()
    assert drawing.rows("SELECT count(*) FROM flow") == [(len(wanted),)]
    same(
        (tuple(sorted(pair)) for pair in drawing.loaded.arrows()),
        (tuple(sorted(pair)) for pair in wanted),
    )


def test_counters_have_all_their_samples_and_units(drawing: Drawing) -> None:
    wanted = drawing.expected.counters()
    if drawing.is_json:  # has neither groups nor units: the unit ends the name
        wanted = [replace_label(one, "", f"{one.name} {one.unit or 'value'}", "") for one in wanted]
    found = drawing.loaded.counters()
    same((label_of(one) for one in found), (label_of(one) for one in wanted))
    for mine, own in zip(sorted(found), sorted(wanted), strict=True):
        assert len(mine.samples) == len(own.samples) > 0
        assert [time for time, _ in mine.samples] == [time for time, _ in own.samples]
        values = [value for _, value in own.samples]
        assert [value for _, value in mine.samples] == pytest.approx(values, rel=1e-12)
        assert sum(value for _, value in mine.samples) == pytest.approx(sum(values))


def replace_label(one: Counter, group: str, name: str, unit: str) -> Counter:
    return one._replace(group=group, name=name, unit=unit)


def label_of(one: Counter) -> tuple[int, str, str, str]:
    return one.rank, one.group, one.name, one.unit


def test_rows_are_named_and_in_order(drawing: Drawing) -> None:
    wanted = list(places_of(drawing.expected))
    found = json_places(drawing) if drawing.is_json else tracks_in_order(drawing)
    assert found == wanted


def places_of(expected: ExpectedPicture) -> Iterator[tuple[int, str, str]]:
    """Rank, layer and row from top to bottom: by layer in a summary, by rank in a detail."""
    rows = expected.rows()
    layers = list(dict.fromkeys(layer for _, layer in rows))
    order = sorted(
        rows,
        key=lambda place: (
            (layers.index(place[1]), place[0])
            if expected.kind is Kind.SUMMARY
            else (place[0], layers.index(place[1]))
        ),
    )
    yield ALL_RANKS, "", STEPS
    for place in order:
        for row in rows[place]:
            yield *place, row


def tracks_in_order(drawing: Drawing) -> list[tuple[int, str, str]]:
    """Rows from top to bottom as the UI sorts them: by explicit rank among siblings."""
    tracks = drawing.loaded.tracks.values()
    children: dict[int | None, list[Any]] = {}
    for track in tracks:
        children.setdefault(track.parent, []).append(track)
    leaves = {track for (track,) in drawing.rows("SELECT DISTINCT track_id FROM slice")}
    leaves |= {track for (track,) in drawing.rows("SELECT DISTINCT track_id FROM counter")}
    found: list[tuple[int, str, str]] = []

    def visit(parent: int | None) -> None:
        siblings = children.get(parent, [])
        names_by_order: dict[int, set[str]] = {}
        for track in siblings:
            names_by_order.setdefault(track.order, set()).add(track.path[-1])
        assert all(len(names) == 1 for names in names_by_order.values()), "places are not shared"
        for track in sorted(siblings, key=lambda own: own.order):
            if track.id in leaves and label(track) not in found:
                found.append(label(track))
            visit(track.id)

    def label(track: Any) -> tuple[int, str, str]:
        if track.row is None:  # a counter
            return track.rank, "Counters", " / ".join(track.path[-2:])
        place: tuple[int, str, str] = track.place
        return place

    visit(None)
    return found


def json_places(drawing: Drawing) -> list[tuple[int, str, str]]:
    """Rows from top to bottom by the sort indexes of the file; this engine does not read them."""
    events = json.loads(drawing.content)["traceEvents"]
    meta: dict[str, dict[tuple[int, int], Any]] = {}
    for event in events:
        if event["ph"] == "M":
            (value,) = event["args"].values()
            meta.setdefault(event["name"], {})[event["pid"], event["tid"]] = value
    processes = sorted(meta["process_name"], key=lambda key: meta["process_sort_index"][key])
    names = [meta["process_name"][key] for key in processes]
    assert len(set(names)) == len(names), "a process per layer of a rank"
    found: list[tuple[int, str, str]] = []
    for pid, tid in processes:
        process = meta["process_name"][pid, tid]
        threads = [key for key in meta["thread_name"] if key[0] == pid]
        threads.sort(key=lambda key: meta["thread_sort_index"][key])
        rows = [meta["thread_name"][key] for key in threads]
        _, rank, layer = (*process.split(" ", 2), "")[:3] if "Rank " in process else ("", "", "")
        if not rank:
            found.append((ALL_RANKS, "", STEPS))
            continue
        rows += dict.fromkeys(
            event["name"] for event in events if event["ph"] == "C" and event["pid"] == pid
        )
        found += [(int(rank), layer, row) for row in dict.fromkeys(rows)]
    return found
