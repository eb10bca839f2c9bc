"""Files with the parallel strategy of a run, and with times of computing and communication."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from timeline.columns.strings import NO_NAME
from timeline.errors import SourceError
from timeline.records.not_given import NO_ID
from timeline.records.profiler_tables import (
    CollectionSettings,
    CollectiveSums,
    LinkSums,
    ParallelSource,
    ParallelStrategies,
    ParallelTimes,
)
from timeline.records.task_kinds import collective_kind
from timeline.sources.common.decimals import whole_number
from timeline.sources.common.identity import GROUPS, read_groups
from timeline.sources.common.losses import LossLog
from timeline.sources.companions.delimited import (
    MOST,
    UNREADABLE,
    Cell,
    Row,
    TableReader,
    TablesBuilder,
    Unit,
    parse_json,
    quantity,
    read_rows,
    read_texts,
    scale,
    table_of_rows,
)
from timeline.sources.companions.file_kinds import NumberedFile, NumberedFiles
from timeline.sources.decoders.json_values import read_json
from timeline.sources.files.opened import without_gz

_NAME = re.compile(r"ascend_cluster_analyse_([a-z-]+)_(\d{1,9})_(\d{1,9})_\d+\.csv", re.ASCII)
_TIMES = {
    "computing_ns": ("computation",),
    "communication_alone_ns": ("communication_alone",),
    "stage_ns": ("stage",),
    "receive_alone_ns": ("receive_alone",),
    "collective_alone_ns": ("collective_communication_alone", "collective_communication"),
}
"""Names in headers of each column, which may end in `_time`. Files of data-parallel runs may have
the columns of the step trace instead, in ticks: those are read from the step trace itself."""
_HCCL = (
    Cell(("step_num",)),
    Cell(("link_info",)),
    Cell(("communication_operator_cost",), absent=NO_NAME),
)
_MEAN = "-"
_SIZES = {
    "ranks": ("world_size", "default_group"),
    "stages": ("pipeline_model_parallel_size", "pp"),
    "tensors": ("tensor_model_parallel_size", "tp"),
    "contexts": ("context_parallel_size", "cp"),
}
"""Names of sizes in `distributed_args`, which are Megatron's, and the groups of that size."""
_PAIR = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)
_MOST_RANKS = 1 << 20
_NS_OF_MS, _BYTES_OF_KB = 1_000_000, 1000


def read_cluster(files: NumberedFiles, into: TablesBuilder) -> None:
    """Read ParallelStrategies, ParallelTimes, LinkSums and CollectiveSums."""
    readers: dict[NumberedFile, TableReader] = {
        NumberedFile.PARALLEL_TIMES: _read_times,
        NumberedFile.PARALLEL_STRATEGY: _read_strategy,
        NumberedFile.PROFILER_INFO: _read_profiler_info,
        NumberedFile.METADATA: _read_metadata,
        NumberedFile.HCCL: _read_hccl,
    }
    into.read_files(files, readers)


# -- parallel strategy -----------------------------------------------------------------------------


def _add_strategy(
    source: ParallelSource,
    path: Path,
    into: TablesBuilder,
    mode: object = None,
    stages: object = None,
    ranks: object = None,
    stage: object = None,
    **more: int,
) -> None:
    """Add the parallel strategy in a file, if it holds any part of one.

    more: other columns of ParallelStrategies.
    """
    sizes = {"stages": _whole(stages, 1), "ranks": _whole(ranks, 1), "stage": _whole(stage, 0)}
    sizes |= more
    name_of_mode = mode if isinstance(mode, str) else ""
    if name_of_mode or any(value != NO_ID for value in sizes.values()):
        codes = {"file": into.strings.code(path.name), "mode": into.strings.code(name_of_mode)}
        columns = {name: [value] for name, value in (codes | sizes | {"source": source}).items()}
        into.add(ParallelStrategies.of(1, columns))


def _whole(value: object, least: int) -> int:
    """Return a number of ranks or stages, which may be a string; NO_ID for anything else."""
    number = whole_number(value)
    return NO_ID if number is None or not least <= number <= _MOST_RANKS else number


def _read_strategy(path: Path, _: LossLog, into: TablesBuilder) -> None:
    """Read parallel_strategy_R.json; a file without `config` holds only the graph."""
    config = read_json(path).get("config")
    if not isinstance(config, dict):
        return
    stages, ranks = _stage_devices(config.get("stageDevices"))
    mode, stage = config.get("parallelType"), config.get("stageId")
    _add_strategy(ParallelSource.STRATEGY, path, into, mode, stages, ranks, stage)


def _stage_devices(stages: object) -> tuple[int | None, int | None]:
    """Return the number of stages and ranks: each stage lists its ranks by dimensions."""
    if not isinstance(stages, list) or not stages:
        return None, None
    ranks = [stage.get("dim") if isinstance(stage, dict) else None for stage in stages]
    counts = [len(listed) for listed in ranks if isinstance(listed, list)]
    return (len(counts), sum(counts)) if len(counts) == len(ranks) else (None, None)


def _read_profiler_info(path: Path, _: LossLog, into: TablesBuilder) -> None:
    info = read_json(path)
    values = map(info.get, ("parallel_mode", "stage_num", "rank_size"))
    _add_strategy(ParallelSource.PROFILER_INFO, path, into, *values)
    settings: object = info
    for key in ("config", "experimental_config", "_l2_cache"):
        settings = settings.get(key) if isinstance(settings, dict) else None
    if settings is True:
        into.add(CollectionSettings.of(1, l2_cache=True))


def _read_metadata(path: Path, _: LossLog, into: TablesBuilder) -> None:
    """Read profiler_metadata.json: the sizes in `distributed_args`, else the sizes of groups.

    The stage of a rank is its index in its group `pp`.
    """
    try:
        document = read_json(path)
    except SourceError:
        return  # counted where the process groups are read
    args = document.get("distributed_args")
    args = args if isinstance(args, dict) else {}
    groups = read_groups(document.get(GROUPS))
    members = {group.name: group.ranks for group in reversed(groups)}
    sizes = {
        field: _whole(args.get(key, len(members.get(name, ())) or None), 1)
        for field, (key, name) in _SIZES.items()
    }
    stages = members.get("pp", ())
    stage = stages.index(into.rank) if into.rank in stages else None
    _add_strategy(ParallelSource.METADATA, path, into, stage=stage, **sizes)


# -- times of computing and communication ----------------------------------------------------------


def _read_times(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read ascend_cluster_analyse_MODE_STAGES_RANKS_R.csv.

    It has a row per step in the order of the step trace, then their mean; a single row is both.
    A damaged row keeps its step. Steps beyond those of the step trace are numbered after its last.
    """
    if match := _NAME.fullmatch(without_gz(path.name)):
        _add_strategy(ParallelSource.TIMES, path, into, *match.groups())
    rows = read_rows(path, losses)
    header = next(rows, Row(0, ())).cells
    names = [name.lower().removesuffix("_time") for name in header]
    places = {
        field: names.index(name)
        for field, accepted in _TIMES.items()
        for name in reversed(accepted)
        if name in names
    }
    if not places:
        return
    values: list[list[int | float] | None] = []
    for row in rows:
        times = [quantity(row.text(at), Unit.MILLISECONDS) for at in places.values()]
        good = [time for time in times if time is not None and 0 <= time <= MOST]
        is_whole = len(good) == len(times) and len(row.cells) >= len(header)
        values.append(good if is_whole else None)
        if not is_whole:
            losses.add(UNREADABLE, f"line {row.line}")
    values = values if len(values) != 1 else 2 * values
    last, count = into.step_numbers[-1] if into.step_numbers else 0, max(len(values) - 1, 0)
    steps = [*into.step_numbers, *range(last + 1, last + 1 + count)][:count]
    kept = [at for at, value in enumerate(values) if value is not None]
    columns: dict[str, list[Any]] = {
        "step": [steps[at] if at < len(steps) else NO_ID for at in kept],
        "first": [at == 0 for at in kept],
        "mean": [at == len(values) - 1 for at in kept],
    }
    for number, field in enumerate(places):
        columns[field] = [value[number] for value in values if value is not None]
    into.add(ParallelTimes.of(len(kept), columns))


# -- links and communication ops -------------------------------------------------------------------


def _read_hccl(path: Path, losses: LossLog, into: TablesBuilder) -> None:
    """Read hccl_raw_R.csv: a row per step, with links and ops as JSON in cells.

    Bandwidths are skipped, since they are sums of the bandwidths of ops; so is the row of means.
    """
    links: list[tuple[int, ...]] = []
    sums: list[tuple[int, ...]] = []
    for row in read_texts(path, _HCCL, losses):
        cells = row.cells
        if cells[0] == _MEAN:
            continue
        if not _is_whole(cells[0]):
            losses.add("rows without a step", f"line {row.line}")
            continue
        step, where = int(cells[0]), f"line {row.line}"
        links += _links_of(step, cells[1], into, losses, where)
        sums += _ops_of(step, cells[2], into, losses, where)
    into.add(table_of_rows(LinkSums, links))
    into.add(table_of_rows(CollectiveSums, sums))


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def _links_of(
    step: int, text: str, into: TablesBuilder, losses: LossLog, where: str
) -> Iterator[tuple[int, ...]]:
    """Yield rows of LinkSums from `{"1-0": {"SDMA": [ms, kB, kB/s]}}`."""
    for pair, kinds in _object(text, losses, where).items():
        ends = _PAIR.fullmatch(pair)
        for link, figures in kinds.items() if isinstance(kinds, dict) else ():
            time_ns, size_bytes = _scaled(figures, 0, _NS_OF_MS), _scaled(figures, 1, _BYTES_OF_KB)
            if ends is None or time_ns is None or size_bytes is None:
                losses.add("links that cannot be read", where)
                continue
            code = into.strings.code(link)
            yield step, int(ends[1]), int(ends[2]), code, size_bytes, time_ns


def _ops_of(
    step: int, text: str, into: TablesBuilder, losses: LossLog, where: str
) -> Iterator[tuple[int, ...]]:
    """Yield rows of CollectiveSums from `{NAME: [step, transfer ms, wait ms, links]}`.

    The cell is empty in files of some versions.
    """
    sums: dict[str, list[int]] = {}
    for name, figures in _object(text, losses, where).items() if text else ():
        transfer_ns, wait_ns = (_scaled(figures, at, _NS_OF_MS) for at in (1, 2))
        if transfer_ns is None or wait_ns is None:
            losses.add("communication ops that cannot be read", where)
            continue
        of_kind = sums.setdefault(collective_kind(name), [0, 0, 0])
        for at, value in enumerate((1, wait_ns, transfer_ns)):
            of_kind[at] += value
    for kind, of_kind in sums.items():
        yield step, into.strings.code(kind), *of_kind


def _object(text: str, losses: LossLog, where: str) -> dict[str, Any]:
    """Parse a cell that holds a JSON object; count anything else as damage and return no object."""
    value = parse_json(text)
    if not isinstance(value, dict):
        losses.add("cells without a JSON object", where)
        return {}
    return value


def _scaled(figures: object, at: int, factor: int) -> int | None:
    """Return the number at an index of a list times a factor; None if it is not there."""
    is_long = isinstance(figures, list) and len(figures) > at
    return scale(figures[at], factor) if is_long else None  # type: ignore[index]
