"""Proves that the page of a report says what the report says, safely and readably."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.html_page import HOSTILE, MOST_BYTES, read
from tests.support.made_figures import made_report
from tests.support.profile_shelf import ProfileShelf
from timeline.cli.main import main
from timeline.commands.export import export
from timeline.errors import OutputError
from timeline.records.tables import Omission, OmissionCode
from timeline.reports.export_report import ExportReport
from timeline.reports.html import render_export_page
from timeline.reports.html.charts import PARTS, StepGrid, draw_rank_map, draw_steps, with_parts
from timeline.reports.html.page import LONG, LONGEST, size_column
from timeline.tables.operators import total_by_type
from timeline.tables.parallel import ParallelIndices
from timeline.tables.short_names import shortened
from timeline.tables.table import Table
from timeline.tables.waits import REFERENCE_GB_S, bandwidth_table
from timeline.tracks.colours import Colour
from timeline.units import format_bytes, format_short
from timeline.verdict.verdict import Verdict

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.support.perfetto_ui import PerfettoUi

EDGES = ("left", "right", "top", "bottom")
Open = Callable[..., "Page"]


@pytest.fixture(scope="module")
def report(shelf: ProfileShelf, tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    """That of two ranks with three steps of two graphs, with every phase of the step trace."""
    profile = shelf.get("mindstudio", graphs=(1, 3))
    target = tmp_path_factory.mktemp("report") / "picture.pftrace"
    return export(profile.path, target, report=target.with_suffix(".html"))


@pytest.fixture(scope="module")
def content(report: ExportReport) -> bytes:
    return render_export_page(report)


# -- content ---------------------------------------------------------------------------------------


def given(values: Any) -> list[str]:
    return ["-1" if value is None else str(value) for value in values.tolist()]


def test_the_page_that_is_written_is_that_of_the_report(
    report: ExportReport, content: bytes
) -> None:
    """The same report is drawn to the same bytes."""
    assert report.outputs[0].path.with_suffix(".html").read_bytes() == content


def test_numbers_of_ranks_and_steps_are_those_of_the_figures(
    report: ExportReport, content: bytes
) -> None:
    shown = read(content)
    columns = {
        "Compute": "computing_ns",
        "Overlapped": "overlapped_ns",
        "Exposed": "not_overlapped_ns",
        "Waiting": "waiting_ns",
        "Transfer": "transfer_ns",
        "Copies": "copies_ns",
        "Idle": "idle_ns",
    }
    verdict = report.verdict
    for name, table, keys in (
        ("ranks", verdict.mean_steps, {"Rank": "rank", "Mean step": "period_ns"}),
        ("steps", verdict.steps, {"Step": "step", "Rank": "rank", "Time": "period_ns"}),
    ):
        whole = with_parts(table)
        for title, column in {**keys, **columns}.items():
            if title in ("Copies", "Waiting", "Transfer") and not whole[column].any():
                continue
            assert shown.column(name, title) == given(whole[column]), (name, title)
    phases = {"FP/BP": "fp_bp_ns", "Tail": "tail_ns", "Interval": "interval_ns"}
    for title, column in phases.items():
        assert shown.column("steps", title) == given(verdict.steps[column])


@pytest.mark.parametrize("by_name", [False, True])
def test_numbers_of_operators_are_those_of_the_figures(
    report: ExportReport, content: bytes, by_name: bool
) -> None:
    """Counts and times of all ranks together, by type and by name, with shares that add up."""
    shown = read(content)
    totals = total_by_type(report.figures.operators, by_name=by_name)
    for noun, communication in (("operators", 0), ("collectives", 1)):
        table = f"{noun}-by-{'name' if by_name else 'type'}"
        rows = totals.take(totals["communication"] == communication)
        assert len(rows)
        for title, column in {
            "Count": "count",
            "Total": "total_ns",
            "Min": "shortest_ns",
            "Max": "longest_ns",
            "Wait before": "waited_ns",
        }.items():
            assert shown.column(table, title) == given(rows[column])
        if by_name:
            assert shown.column(table, "Name") == shortened(rows["name"].tolist(), LONG)
        assert sum(map(float, shown.column(table, "Share"))) == pytest.approx(1, abs=1e-4)


def test_all_figures_by_name_add_up_to_those_by_type(report: ExportReport) -> None:
    by_type, by_name = (
        total_by_type(report.figures.operators, by_name=by_name) for by_name in (False, True)
    )
    assert by_type["total_ns"].sum() == by_name["total_ns"].sum()
    assert len(by_name) > len(by_type)


def test_warm_up_does_not_flatten_what_comes_behind() -> None:
    """Pictures of steps end at the longest ordinary step, and say which are beyond."""
    report = made_report(2, 9)
    steps = report.figures.steps
    slow = {
        name: np.where(steps["step"] == 1, 40 * steps[name], steps[name])
        for name in (
            "period_ns",
            "computing_ns",
            "communication_ns",
            "not_overlapped_ns",
            "idle_ns",
        )
    }
    figures = report.figures.with_tables(steps=Table({**steps.columns, **slow}))
    slower = replace(report, figures=figures, verdict=Verdict.of(figures))
    drawn = draw_steps(StepGrid.of(figures), None)
    assert drawn is not None
    longest_ns = int(slow["period_ns"][steps["step"] > 1].max())
    assert StepGrid.of(figures).ceiling_ns("period_ns") == longest_ns
    said = f"Step 1 ({format_short(int(slow['period_ns'].max()))}) reaches beyond the picture."
    assert drawn["beyond"].endswith(said)
    assert said in render_export_page(slower).decode()


def test_tiles_are_the_numbers_of_the_headline(report: ExportReport, content: bytes) -> None:
    """The shares of the sentence that says where a step goes, and none of anything else."""
    (sentence,) = [one for one in report.verdict.sentences() if one.startswith("Step (")]
    text = content.decode()
    tiles = re.findall(r"<dt>(.*?)(?:<br>(.*?))?</dt><dd>(.*?)</dd>", text)
    shares = [(label, value, detail) for label, detail, value in tiles if value.endswith("%")]
    assert shares
    told = [
        f"{label} {value}" + (f" ({detail})" if detail else "") for label, value, detail in shares
    ]
    length = next(value for label, _, value in tiles if label == "mean step")
    assert sentence.startswith(f"Step ({length}): {', '.join(told)}.")


def test_the_script_draws_from_the_figures(report: ExportReport, content: bytes) -> None:
    """Each time of each step of each rank is that of the figures, in 24 bits."""
    (data,) = [block for block in read(content).blocks if block["is"] == "steps"]
    numbers = np.frombuffer(base64.b64decode(data["values"]), "<f4")
    values = numbers.reshape(len(data["ranks"]), len(data["series"]), len(data["labels"]))
    figures = report.figures
    table = with_parts(Table({**figures.steps.columns, **figures.exposed_steps.columns}))
    for row in table.to_dicts():
        at = data["ranks"].index(row["rank"]), data["labels"].index(f"{row['graph']}:{row['step']}")
        row["marked_ns"] = row["end_ns"] - row["start_ns"]
        for place, name in enumerate(data["series"]):
            number = values[at[0], place, at[1]]
            if row[name] is None:
                assert np.isnan(number)
            else:
                assert number == pytest.approx(row[name], rel=1e-6)


def test_who_waits_is_told(shelf: ProfileShelf, here: Path) -> None:
    """For each rank, each group and each link, with the numbers of the report."""
    report = export(shelf.get("torch-text", ranks=3).path, "a.pftrace", kind="detail")
    parsed = read(render_export_page(report))
    waiting, links = report.figures.waiting, report.figures.links
    ranks = list(map(int, parsed.column("stragglers", "Rank")))
    caused = list(map(int, parsed.column("stragglers", "Wait caused")))
    every = dict(zip(waiting["rank"].tolist(), waiting["caused_ns"].tolist(), strict=True))
    assert caused == sorted(caused, reverse=True)
    assert dict(zip(ranks, caused, strict=True)) == {
        rank: caused_ns for rank, caused_ns in every.items() if caused_ns > 0
    }
    (total_ns,) = parsed.column("groups", "Total")
    assert int(total_ns) == report.figures.collectives["total_ns"].sum()
    slowest = list(map(float, parsed.column("slow-links", "Bandwidth")))
    assert slowest == sorted(np.round(links["bandwidth_gb_s"], 4).tolist())
    assert parsed.titles("links") == ["From", "To 0", "To 1", "To 2"]
    columns = [column["values"] for column in parsed.tables["links"]["columns"][1:]]
    assert {value for column in columns for value in column} - {None} == set(slowest)


def test_bandwidth_stands_beside_a_reference(shelf: ProfileShelf, here: Path) -> None:
    """That of the kind of link, or the best link of the run, on the page without a click."""
    report = export(shelf.get("torch-text", ranks=3).path, "a.pftrace")
    links = report.figures.links
    content = render_export_page(report)
    parsed = read(content)
    assert parsed.column("bandwidth", "Link") == ["HCCS"]
    mean = links["size_bytes"].sum() / links["total_ns"].sum()
    (told,) = map(float, parsed.column("bandwidth", "Bandwidth"))
    assert told == pytest.approx(mean, abs=1e-4)
    (reference,) = map(float, parsed.column("bandwidth", "Reference"))
    (share,) = map(float, parsed.column("bandwidth", "Of reference"))
    assert share == pytest.approx(mean / reference, abs=1e-6)
    assert reference == REFERENCE_GB_S["HCCS"]
    assert "fold" not in parsed.tables["bandwidth"]

    other = Table({**links.columns, "link": np.array(["HCCS_SW"] * len(links), object)})
    kinds = bandwidth_table(other)
    assert kinds["reference_gb_s"].tolist() == kinds["fastest_gb_s"].tolist()
    assert kinds["fastest_gb_s"].tolist() == [links["bandwidth_gb_s"].max()]


def test_who_waits_for_whom_is_a_map_of_ranks(shelf: ProfileShelf, here: Path) -> None:
    """Every pair of ranks has the time of the figures; ranks outside the profile are columns."""
    profile = shelf.get("torch-text", ranks=4, profiled=(0, 1, 2))
    report = export(profile.path, "a.pftrace")
    chart = read(render_export_page(report)).chart("waits")
    rows, columns = chart["row_ids"], chart["labels"]
    assert rows == [0, 1, 2]
    values = np.frombuffer(base64.b64decode(chart["values"]), "<f4").reshape(3, len(columns))
    told = {
        (row["rank"], row["waited_for_rank"]): row["waited_ns"]
        for row in report.figures.waited_for.to_dicts()
    }
    assert told
    assert {whom for _, whom in told} <= {int(label) for label in columns if label != "?"} | {None}
    for at, row in enumerate(rows):
        for place, label in enumerate(columns):
            whom = None if label == "?" else int(label)
            expected = told.get((row, whom), 0)
            if row == whom:
                assert np.isnan(values[at, place])
            else:
                assert values[at, place] == pytest.approx(expected, rel=1e-6)


def test_of_many_ranks_the_worst_pairs_and_a_row_of_sums_are_told() -> None:
    """Sums are those of the figures, the largest of neighbours that share a column."""
    report = made_report(1000, 4, names=10)
    waited_for = report.figures.waited_for
    content = render_export_page(report)
    chart = read(content).chart("waits")
    columns, values = chart["labels"], chart["layers"][0]["parts"][0]["values"]
    sums = np.zeros(1000, np.int64)
    np.add.at(sums, np.asarray(waited_for["waited_for_rank"]), waited_for["waited_ns"])
    assert len(columns) <= 400
    for label, value in zip(columns, values, strict=True):
        assert value == sums[int(label)]
    assert str(int(np.argmax(sums))) in columns
    shown = read(content)
    longest = np.sort(waited_for["waited_ns"])[::-1][:20]
    assert shown.column("waits", "Time it waited") == given(longest)


def test_the_culprit_is_marked_in_the_headline(shelf: ProfileShelf, here: Path) -> None:
    """The sentence stays the same; where nobody is blamed, nothing is marked."""
    report = export(shelf.get("torch-text", ranks=4, ops_per_step=24).path, "a.pftrace")
    culprit = report.verdict.culprit
    assert culprit is not None
    assert report.verdict.slow_rank == culprit.rank
    content = render_export_page(report).decode()
    marked = f'<strong class="culprit">Rank {culprit.rank}</strong>'
    assert content.count('<strong class="culprit">') == content.count(marked) == 1
    first = next(report.verdict.sentences())
    assert first in re.sub(r"</?strong[^>]*>", "", content)
    alone = export(shelf.get("torch-text", ranks=1).path, "b.pftrace")
    assert '<strong class="culprit">' not in render_export_page(alone).decode()
    late = report.figures.steps
    assert '<p class="next">See why: <code>tlexport ' in content
    parsed = read(content.encode())
    values = np.frombuffer(base64.b64decode(parsed.chart("late")["values"]), "<f4")
    expected = np.maximum(np.ma.filled(late["late_ns"], 0), 0)
    assert np.nanmax(values) == np.float32(expected.max())
    row = int(np.nanargmax(np.nanmax(values.reshape(4, -1), axis=1)))
    assert parsed.chart("late")["row_ids"][row] == culprit.rank


def of_layout(report: ExportReport, tp: int, dp: int) -> ExportReport:
    """The report of a run that shares layers among tp ranks, and data among dp of each stage."""
    ranks = tuple(
        replace(
            one,
            indices=ParallelIndices(one.rank // tp % dp, one.rank // (tp * dp), one.rank % tp),
        )
        for one in report.ranks
    )
    return replace(report, ranks=ranks)


def map_in(content: bytes) -> dict[str, Any]:
    (block,) = (one for one in read(content).blocks if one["is"] == "ranks")
    return block


def test_all_ranks_are_a_map_of_the_parallel_layout() -> None:
    """A row is a stage of the pipeline, a box in it a copy of the data, ranks of a layer beside."""
    made = made_report(64, 3, names=3)
    block = map_in(render_export_page(of_layout(made, 4, 4)))
    assert [row["label"] for row in block["rows"]] == ["PP 0", "PP 1", "PP 2", "PP 3"]
    for stage, row in enumerate(block["rows"]):
        assert [box["label"] for box in row["boxes"]] == ["DP 0", "DP 1", "DP 2", "DP 3"]
        for copy, box in enumerate(row["boxes"]):
            first = 16 * stage + 4 * copy
            assert [block["ranks"][at] for at in box["cells"]] == [*range(first, first + 4)]


@pytest.mark.parametrize("ranks", [2, 8, 1024])
def test_ranks_without_a_layout_are_in_their_order(ranks: int) -> None:
    """Eight in a box and 64 in a row, also where a layout does not divide them evenly."""
    made = made_report(ranks, 3, names=3)
    for report in (made, of_layout(made, 3, 2) if ranks > 2 else made):
        block = map_in(render_export_page(report))
        boxes = [box["cells"] for row in block["rows"] for box in row["boxes"]]
        assert [at for box in boxes for at in box] == [*range(ranks)]
        assert {len(box) for box in boxes} == {min(ranks, 8)}
        rows = ["", *map(str, range(0, ranks, 64))]
        assert [row["label"] for row in block["rows"]] == rows[:1] if ranks <= 64 else rows[1:]


def test_the_map_of_ranks_is_of_the_figures(shelf: ProfileShelf, here: Path) -> None:
    """Each measure of each rank; the rank of the finding is marked, and nobody else."""
    report = export(shelf.get("torch-text", ranks=4, ops_per_step=24).path, "a.pftrace")
    block = map_in(render_export_page(report))
    culprit, means = report.verdict.culprit, report.verdict.mean_steps
    assert culprit is not None
    assert block["found"] == {str(culprit.rank): "finding 1"}
    values = {
        one["label"]: np.frombuffer(base64.b64decode(one["values"]), "<f4")
        for one in block["measures"]
    }
    assert [*values] == ["Late", "Own time", "Waiting", "Transfer"]
    own_ns = means["period_ns"] - means["not_overlapped_ns"]
    for name, times_ns in (("Own time", own_ns), ("Waiting", means["waiting_ns"])):
        assert values[name] == pytest.approx(times_ns.astype(float), rel=1e-6)
    assert block["ranks"][int(np.nanargmax(values["Late"]))] == culprit.rank
    steps = report.figures.steps
    of_rank = steps.take((steps["rank"] == culprit.rank) & (steps["ordinary"] == 1))
    late_ns = np.maximum(np.ma.filled(of_rank["late_ns"], 0), 0).mean()
    assert np.nanmax(values["Late"]) == pytest.approx(late_ns, rel=1e-6)


def test_the_map_opens_on_the_measure_that_shows_the_finding() -> None:
    """How late ranks come, unless others come as late; then what the rank itself takes."""
    made = made_report(8, 3, names=3)
    means = with_parts(made.verdict.mean_steps)
    period_ns = np.where(means["rank"] == 5, 3, 1) * means["period_ns"]
    means = Table({**means.columns, "period_ns": period_ns})
    grid = StepGrid.of(made.figures)
    for late_ns, label in ((np.arange(8) == 5, "Late"), (np.arange(8) > 1, "Own time")):
        late = np.repeat(late_ns[:, None] * 1_000_000, grid.shape[1], axis=1)
        drawn = draw_rank_map(
            means, replace(grid, times={**grid.times, "late_ns": late}), {}, {5: "finding 1"}
        )
        assert drawn is not None
        assert drawn["measures"][drawn["shown"]]["label"] == label


def test_an_index_leads_to_every_section(content: bytes) -> None:
    links = re.findall(r'<a href="#([^"]*)">([^<]*)</a>', content.decode().split("<nav")[1])
    sections = [block for block in read(content).blocks if block["is"] == "section"]
    assert links == [(one["anchor"], one["title"]) for one in sections]
    assert len({anchor for anchor, _ in links}) == len(links) > 3


def test_the_critical_path_is_told(shelf: ProfileShelf, here: Path) -> None:
    """By rank and kind, all of the path."""
    report = export(shelf.get("torch-text", ranks=3).path, "a.pftrace")
    parsed, path = read(render_export_page(report)), report.figures.critical_path
    times = list(map(int, parsed.column("path", "Time")))
    assert sum(times) == path["duration_ns"].sum()
    assert times == sorted(times, reverse=True)
    pairs = set(zip(path["rank"].tolist(), path["kind"].tolist(), strict=True))
    assert len(times) == len(pairs)


def test_sizes_that_nothing_tells_are_no_sizes() -> None:
    """Where some rows tell theirs; a column without any is not there."""
    column = size_column("Size", np.ma.masked_array([2_500_000, 0], [False, True]))
    assert column is not None
    assert (column["values"], column["scale"]) == ([2_500_000, None], 1e6)
    assert size_column("Size", np.ma.masked_array([1, 2], True)) is None


def test_what_is_left_out_is_said(report: ExportReport) -> None:
    """By reason, over all ranks, with the warnings and the size of the timeline."""
    omissions = tuple(
        Omission("lost & found", rank + 2, rank, loss=True, code=OmissionCode.NOT_DRAWN)
        for rank in (0, 1)
    )
    text = render_export_page(
        replace(report, omissions=omissions, warnings=("mind the gap",))
    ).decode()
    for said in ("5 records: lost & found", "mind the gap", "1 warning; records were left out"):
        assert said in text
    assert format_bytes(report.outputs[0].size_bytes) in text


def test_a_rank_without_steps_has_a_page() -> None:
    """Sections that have nothing to show are not there."""
    shown = read(render_export_page(made_report(1, 0, names=3)))
    assert "steps" not in shown.tables
    assert "ranks" in shown.tables


def test_a_report_of_nothing_has_a_page() -> None:
    assert b"holds no device work" in render_export_page(made_report(0, 0))


@pytest.mark.parametrize("ranks", [1, 3, 100])
def test_where_nothing_takes_time_there_is_a_page(ranks: int) -> None:
    """The device ran outside of all steps, of which each began and ended at once."""
    made = made_report(ranks, 3)
    figures = made.figures.with_tables(
        overlap=_without_time(made.figures.overlap),
        steps=_without_time(made.figures.steps),
    )
    report = replace(made, figures=figures, verdict=Verdict.of(figures))
    shown = read(render_export_page(report))
    assert shown.tables


def _without_time(table: Table) -> Table:
    return Table(
        {
            name: column * 0 if name.endswith("_ns") else column
            for name, column in table.columns.items()
        }
    )


# -- size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "steps"), [(1024, 10), (10, 1000)])
def test_the_page_stays_small(ranks: int, steps: int) -> None:
    """A few hundred kB, with the slowest of everything in it."""
    report = made_report(ranks, steps, names=100)
    content = render_export_page(report)
    assert len(content) < MOST_BYTES
    shown = read(content)
    slowest = str(report.verdict.mean_steps["period_ns"].max())
    assert slowest in shown.column("ranks", "Mean step")
    assert str(report.verdict.steps["period_ns"].max()) in shown.column("steps", "Time")


# -- safety ----------------------------------------------------------------------------------------


def test_names_of_any_length_keep_the_page_small() -> None:
    """They stay apart, also in tooltips."""
    made = made_report(2, 6, names=60)
    operators = made.figures.operators
    names = np.array([name + 90_000 * "x" for name in operators["name"].tolist()], object)
    figures = made.figures.with_tables(operators=Table({**operators.columns, "name": names}))
    page = render_export_page(replace(made, figures=figures))
    assert len(page) < MOST_BYTES
    (whole,) = (
        one["whole"]
        for one in read(page).tables["operators-by-name"]["columns"]
        if one.get("whole")
    )
    assert {len(text) for text in whole.values()} == {LONGEST}
    assert len(set(whole.values())) == len(whole) > 50


def test_the_policy_allows_one_script_and_one_sheet(content: bytes) -> None:
    """No styles or handlers in attributes, nothing from elsewhere."""
    shown = read(content)
    assert "unsafe" not in shown.policy
    assert shown.policy.startswith("default-src 'none'; img-src data:;")
    assert len(re.findall(r"'sha256-", shown.policy)) == 2
    assert len(shown.scripts) == 2, "one script beside the data"
    assert not {name for name in shown.attributes if name == "style" or name.startswith("on")}
    assert b"http" not in re.sub(
        rb"https://ui\.perfetto\.dev|http://www\.w3\.org/2000/svg|http-equiv", b"", content
    )


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture
def opened(ui: PerfettoUi, tmp_path: Path) -> Iterator[Open]:
    """Open a page in a context of its own, which must not complain."""
    contexts, complaints = [], []

    def open_page(content: bytes, **options: Any) -> Page:
        file = tmp_path / "page.html"
        file.write_bytes(content)
        contexts.append(ui.browser.new_context(**options))
        shown = contexts[-1].new_page()
        shown.on("console", lambda message: complaints.append(message.text))
        shown.on("pageerror", lambda error: complaints.append(str(error)))
        shown.goto(file.as_uri())
        return shown

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.mark.browser
def test_names_are_never_obeyed(opened: Open) -> None:
    """Names that end scripts, and try markup, are shown as they are, controls escaped."""
    shown = opened(render_export_page(made_report(2, 3, word=HOSTILE)))
    assert shown.title() != "owned"
    assert shown.locator("img, main b").count() == 0
    cell = shown.locator("#operators-by-type tbody tr td").first
    escaped = HOSTILE.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert escaped[:40] in cell.inner_text()
    assert escaped in (cell.get_attribute("title") or "")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1280])
def test_nothing_overflows_and_colours_follow_the_screen(
    opened: Open, content: bytes, scheme: str, width: int
) -> None:
    """Pictures take the variant of the width, and their colours from the scheme."""
    shown = opened(content, color_scheme=scheme, viewport={"width": width, "height": 800})
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    narrow = shown.locator("figure .narrow > svg").first
    assert narrow.is_visible() == (width < 760)
    drawn = shown.evaluate("getComputedStyle(document.querySelector('[data-role=computing]')).fill")
    colour = colours_of(scheme)["computing"]
    red, green, blue = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    assert drawn == f"rgb({red}, {green}, {blue})"


@pytest.mark.browser
def test_paper_shows_what_is_unfolded(opened: Open) -> None:
    """Printed from a dark screen it is light, and tables end with what matters most."""
    content = render_export_page(made_report(3, 12))
    shown = opened(content, color_scheme="dark", viewport={"width": 700, "height": 900})
    shown.emulate_media(media="print")
    for table in shown.locator("details[open] table").all():
        assert 1 <= table.locator("tbody tr:visible").count() <= 8
    assert shown.locator("details:not([open]) >> visible=true").count() == 0
    assert shown.locator("#steps").count() == 1
    for heat in shown.locator(".heat:not(#heat-time)").all():
        assert heat.is_visible()
    assert shown.evaluate("getComputedStyle(document.documentElement).backgroundColor") == (
        "rgb(255, 255, 255)"
    )
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
@pytest.mark.parametrize("ranks", [2, 64, 1024])
@pytest.mark.parametrize("width", [360, 1366])
def test_a_cell_tells_its_rank_and_takes_the_colour_of_the_choice(
    opened: Open, ranks: int, width: int
) -> None:
    """Every rank has a cell; cells that are wide enough say so without a pointer."""
    report = of_layout(made_report(ranks, 3, names=3), 2, max(1, ranks // 4))
    shown = opened(render_export_page(report), viewport={"width": width, "height": 800})
    cells = shown.locator(".ranks .boxes i")
    assert cells.count() == ranks
    assert cells.first.inner_text().startswith("0") == (ranks <= 256)
    last = cells.last.get_attribute("title") or ""
    assert last.startswith(f"rank {ranks - 1} ({'' if ranks == 2 else 'PP 1, '}")
    colours = "[...document.querySelectorAll('.ranks .boxes i')].map((one) => one.style.background)"
    late = shown.evaluate(colours)
    shown.get_by_label("Own time").check()
    own = shown.evaluate(colours)
    assert own != late
    means = report.verdict.mean_steps
    own_ns = means["period_ns"] - means["not_overlapped_ns"]
    assert own[int(np.argmax(own_ns))] == "rgb(254, 232, 56)", "the lightest"
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_64_ranks_print_on_three_pages(opened: Open) -> None:
    """Of A4, with the pictures of all ranks."""
    shown = opened(render_export_page(made_report(64, 20)))
    assert len(re.findall(rb"/Type\s*/Page\b", shown.pdf(prefer_css_page_size=True))) <= 3


@pytest.mark.browser
def test_1024_ranks_load_within_a_second(opened: Open) -> None:
    """From the file to the end of its script; the fastest of three, as other tests run beside."""
    content = render_export_page(made_report(1024, 4, names=100))
    assert len(content) < MOST_BYTES
    took = []
    for _ in range(3):
        shown = opened(content)
        took.append(shown.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd"))
    assert 0 < min(took) < 1000


@pytest.mark.browser
def test_the_pair_under_the_pointer_is_told(opened: Open, tmp_path: Path) -> None:
    """Who waited for whom, with the time of the figures."""
    report = made_report(3, 2)
    shown = opened(render_export_page(report))
    waits = report.figures.waited_for.to_dicts()
    picture = shown.locator(".waits .wide > svg")
    picture.scroll_into_view_if_needed()
    box = picture.bounding_box()
    assert box is not None
    edges = {name: float(picture.get_attribute(f"data-{name}") or 0) for name in EDGES}
    for row in waits[:3]:
        at = (row["waited_for_rank"] + 0.5) / 3, (row["rank"] + 0.5) / 3
        shown.mouse.move(
            box["x"] + edges["left"] + at[0] * (edges["right"] - edges["left"]),
            box["y"] + edges["top"] + at[1] * (edges["bottom"] - edges["top"]),
        )
        said = shown.locator(".reading[data-of=waits]").inner_text()
        told = re.fullmatch(r"rank (\d+) waited ([\d.]+) (ms|µs) for rank (\d+)", said)
        assert told is not None, said
        assert (int(told[1]), int(told[4])) == (row["rank"], row["waited_for_rank"])
        ns = float(told[2]) * {"ms": 1e6, "µs": 1e3}[told[3]]
        assert ns == pytest.approx(row["waited_ns"], rel=1e-3)


@pytest.mark.browser
def test_a_row_gives_the_command_that_opens_its_place(opened: Open) -> None:
    """As text that is selected, to be copied with one key where a page may not copy it."""
    content = render_export_page(made_report(2, 2))
    command = read(content).column("ranks", "Open")[0]
    shown = opened(content)
    row = shown.locator("#ranks tbody tr").first
    row.get_by_role("button").click()
    assert shown.locator(".next code", has_text=command).is_visible()
    assert shown.evaluate("getSelection().toString()") == command
    assert "run it in a terminal" in shown.locator(".command").first.inner_text()


@pytest.mark.browser
@pytest.mark.parametrize(("window", "width"), [(1366, 1318), (1920, 1400)])
def test_charts_and_tables_are_as_wide_as_the_window(
    opened: Open, content: bytes, window: int, width: int
) -> None:
    """Up to a limit, beyond which bars are hard to compare; sentences stay readable."""
    shown = opened(content, viewport={"width": window, "height": 800})
    for name in ("svg[data-name=parts]", "#operators-by-type"):
        box = shown.locator(f".wide > {name}, .scroll > {name}").first.bounding_box()
        assert box is not None
        assert box["width"] == width
    assert shown.evaluate("document.querySelector('p.lead').clientWidth") <= 880


@pytest.mark.browser
def test_tables_sort_and_search_by_keyboard(opened: Open) -> None:
    """A heading sorts falling, then rising; a search leaves the rows that hold all words."""
    shown = opened(render_export_page(made_report(1, 1)))
    heading = shown.locator("#operators-by-type th", has_text="Wait before")
    head = heading.get_by_role("button")
    place = heading.evaluate("(cell) => cell.cellIndex + 1")
    cells = f"""() => [...document.querySelectorAll('#operators-by-type td:nth-child({place})')]
      .map((cell) => Number(cell.textContent.replace(/[^0-9.]/g, '')))"""
    head.focus()
    shown.keyboard.press("Enter")
    falling = shown.evaluate(cells)
    assert len(set(falling)) > 2
    assert falling == sorted(falling, reverse=True)
    assert heading.get_attribute("aria-sort") == "descending"
    shown.keyboard.press("Enter")
    assert shown.evaluate(cells) == falling[::-1]
    assert heading.get_attribute("aria-sort") == "ascending"
    rows = shown.locator("#operators-by-type tbody tr:visible")
    every = rows.count()
    word = rows.first.locator("td").first.inner_text()
    shown.locator("[data-table=operators-by-type]").fill(f"{word.lower()} core")
    assert 1 <= rows.count() < every
    assert all(word in text for text in rows.all_inner_texts())


@pytest.mark.browser
@pytest.mark.parametrize("columns", [7, 90])
def test_another_rank_is_drawn_by_choice(opened: Open, columns: int) -> None:
    """Its columns are as high as its steps are long, and those of the first come back."""
    report = made_report(3, columns, names=3)
    shown = opened(render_export_page(report))
    heights = """() => {
      const drawn = document.querySelector('.wide > svg[data-name=parts]');
      const tops = [...drawn.querySelectorAll('path[data-role]')].map((path) => path.getBBox());
      return [Math.min(...tops.map((box) => box.y)), drawn.dataset.bottom, drawn.dataset.top];
    }"""
    choice = shown.locator("#rank")
    first = choice.input_value()
    before = shown.evaluate(heights)
    steps = StepGrid.of(report.figures)
    assert len(shown.locator(".wide > svg[data-name=parts] path[data-role]").all()) == (
        len(PARTS) - 3
    ), "nothing tells what is waiting and what transfer"
    for at in range(3):
        choice.select_option(str(at))
        top, low, high = map(float, shown.evaluate(heights))
        longest = steps.times["period_ns"][at].max() / (1.04 * steps.ceiling_ns("period_ns"))
        assert (low - top) / (low - high) == pytest.approx(longest, abs=0.01)
    choice.select_option(first)
    assert shown.evaluate(heights) == before


@pytest.mark.browser
def test_without_scripts_the_page_says_what_is_slow(opened: Open, report: ExportReport) -> None:
    """The sentences and their numbers need no script; that charts and tables do is said."""
    shown = opened(render_export_page(report), java_script_enabled=False)
    text = shown.locator("header").inner_text()
    assert next(report.verdict.sentences()) in text
    assert "A script draws the charts and tables" in text
    assert shown.locator(".tiles dd").count() > 2


# -- colours ---------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def colours_of(scheme: str) -> dict[str, str]:
    """The colours of the style sheet by role: light ones, which dark ones replace in part."""
    style = render_export_page(made_report(0, 0)).decode().partition("<style>")[2]
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)")
    texts = (light, dark.partition("@media print")[0]) if scheme == "dark" else (light,)
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", "".join(texts)))


def test_uses_of_time_have_the_colours_of_the_timeline() -> None:
    """On any screen; waiting is hatched besides, as not everybody tells red from green."""
    roles = {
        "computing": Colour.COMPUTING,
        "waiting": Colour.WAITING,
        "transfer": Colour.TRANSFER,
        "exposed": Colour.EXPOSED,
        "unsplit": Colour.EXPOSED,
        "copies": Colour.COPIES,
        "idle": Colour.IDLE,
    }
    for scheme in ("light", "dark"):
        colours = colours_of(scheme)
        assert {role: colours[role] for role in roles} == {
            role: colour.shown for role, colour in roles.items()
        }
    script = files("timeline.reports.html").joinpath("page.js").read_text("utf-8")
    assert "waiting: ['waiting-hatch', 45]" in script


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(scheme: str) -> None:
    """At least 4.5 for text on what it stands on (WCAG AA), and 3 for lines."""
    colours = colours_of(scheme)
    assert colours.keys() == colours_of("light").keys()
    pairs = [(role, ground) for role in ("ink", "muted", "accent") for ground in ("paper", "panel")]
    pairs += [(f"on-{part.role}", part.role) for part in PARTS]
    pairs += [("on-exposed", "exposed-hatch"), ("on-unsplit", "unsplit-hatch")]
    pairs += [("on-waiting", "waiting-hatch"), ("warning", "panel")]
    pairs += [(role, "paper") for role in ("step", "fp-bp", "tail", "interval")]
    for role, ground in pairs:
        high, low = sorted((luminance(colours[role]), luminance(colours[ground])), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, (role, ground)


# -- on the command line ---------------------------------------------------------------------------


def run(*words: str | Path) -> int:
    return main([str(word) for word in words])


def test_the_page_lies_beside_the_timeline(
    here: Path, shelf: ProfileShelf, capsys: pytest.CaptureFixture[str]
) -> None:
    profile = shelf.get("torch-db").path
    asked = (profile, "-o", "a.pftrace", "--report", "a.html")
    assert run(*asked) == 0
    assert "Look at: a.html" in capsys.readouterr().out
    assert sorted(path.name for path in here.iterdir()) == ["a.html", "a.pftrace"]
    written = {path.name: path.read_bytes() for path in here.iterdir()}
    assert run(profile, "-o", "b.pftrace", "--report", "a.html") == 1
    assert "a.html exists. Pass --force" in capsys.readouterr().err
    assert run(*asked, "--force") == 0
    assert {path.name: path.read_bytes() for path in here.iterdir()} == written


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--report", "a.pdf"), 2, "--report needs a name ending in .html"),
        (("--report", "none/a.html"), 1, "none does not exist"),
        (("--report", "."), 2, "--report needs a name ending in"),
    ],
)
def test_targets_are_checked_before_anything_is_read(
    here: Path,
    shelf: ProfileShelf,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    assert run(shelf.get("torch-db").path, *words) == code
    assert said in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_the_input_is_never_a_target(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not even with --force, and not by a link to it."""
    from simulator.simulation import make_run
    from simulator.writers.tables import write_kernel_details

    write_kernel_details(make_run(ranks=1, steps=2), here / "profile")
    table = next((here / "profile").rglob("kernel_details.csv"))
    (here / "a.html").symlink_to(table)
    before = table.read_bytes()
    assert run(here / "profile", "--report", "a.html", "--force") == 1
    assert "is a symbolic link to" in capsys.readouterr().err
    assert table.read_bytes() == before


def test_when_one_file_cannot_be_published_none_is(
    here: Path, shelf: ProfileShelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeline does not take its name either, and no temporary file is left."""
    from timeline.encoders.drafts import Draft

    publish = Draft.publish

    def fails(draft: Draft, target: Path) -> None:
        if target.suffix == ".html":
            draft.discard()
            raise OutputError(f"{target}: cannot be written.")
        publish(draft, target)

    monkeypatch.setattr(Draft, "publish", fails)
    words = ("-o", "a.pftrace", "--report", "a.html")
    assert run(shelf.get("torch-db").path, *words) == 1
    assert list(here.iterdir()) == []
