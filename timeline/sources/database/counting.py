"""Counters of a profile database, and the rules by which its writer sums up time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

import numpy as np

from timeline.columns.columns import Int64
from timeline.columns.intervals import union
from timeline.records.clock import CommunicationRule, FreeRule
from timeline.records.not_given import NO_ID, NO_TIME
from timeline.records.tables import AI_CORE_FREQUENCY, Omission, OmissionCode
from timeline.records.task_kinds import UNCOUNTED_TYPES
from timeline.sources.common.counter_tables import database_tables
from timeline.sources.common.counters import CounterBuilder
from timeline.sources.common.losses import counted_losses
from timeline.sources.common.overlap_analysis import OVERLAP_TABLE, VendorOverlap, infer_free_rule
from timeline.sources.database.host import DatabaseNames
from timeline.sources.decoders.sqlite import Database, open_database

_OUTER_SINCE = (1, 2)
"""First schema version whose writers count free time by the outer rule; 1.0 uses the inner one."""
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.\d{1,9})?")
_INSIGHT_TABLES = ("status_info", "connectionCats")
"""Tables that MindStudio Insight adds together with an OVERLAP_ANALYSIS by its own rule."""
_STEPS = "analysis.db"
"""Database with sums of steps, in the directory of a profile database of torch_npu."""
OPS_SINCE = datetime(2024, 10, 24, tzinfo=timezone.utc)
"""Date since which torch_npu sums up communication as the union of ops, before of HCCL tasks."""
_NS = 10**9


def find_free_rule(
    database: Database, tasks: Mapping[str, Int64], types: Mapping[int, str], overlap: VendorOverlap
) -> FreeRule:
    """Return the rule by which the writer of a database counts free time, and its time range.

    The writer's own OVERLAP_ANALYSIS decides, else the version of its schema.

    Args:
        database: the profile database.
        tasks: startNs, endNs and taskType of all its tasks, including FFTS+ tasks with sub-tasks.
        types: names by taskType.
        overlap: OVERLAP_ANALYSIS of the devices that are wanted.
    """
    outer, evidence = _is_outer_rule(database, overlap)
    if not outer:
        return FreeRule(evidence)
    uncounted = [number for number, name in types.items() if name in UNCOUNTED_TYPES]
    start_ns, end_ns = tasks["startNs"], tasks["endNs"]
    counts = (start_ns != NO_TIME) & (end_ns >= start_ns) & ~np.isin(tasks["taskType"], uncounted)
    if not counts.any():
        return FreeRule(evidence, outer)
    return FreeRule(evidence, outer, int(start_ns[counts].min()), int(end_ns[counts].max()))


def _is_outer_rule(database: Database, overlap: VendorOverlap) -> tuple[bool, str]:
    """Return whether the writer uses the outer rule, and the evidence, empty if there is none."""
    if not any(database.has(table) for table in _INSIGHT_TABLES):
        rule = infer_free_rule(overlap, f"table {OVERLAP_TABLE}")
        if rule.evidence:
            return rule.outer, rule.evidence
    version = _schema_version(database)
    match = _VERSION.fullmatch(version)
    if not match:
        return False, ""
    return (int(match[1]), int(match[2])) >= _OUTER_SINCE, f"SCHEMA_VERSION {version}"


def _schema_version(database: Database) -> str:
    if not database.has("META_DATA", "name", "value"):
        return ""
    rows = database.rows("SELECT value FROM META_DATA WHERE name = 'SCHEMA_VERSION' LIMIT 1")
    return str(rows[0][0]) if rows else ""


def find_communication_rule(
    database: Database, step_sums_ns: Mapping[int, int]
) -> CommunicationRule:
    """Return whether torch_npu summed up communication over ops or over HCCL tasks.

    Its own sums decide; if they differ from the time of ops, the rule keeps them for comparison
    once steps are known. Without sums the date of the capture decides.

    Args:
        database: the profile database.
        step_sums_ns: torch_npu's communication time of each step, empty if unknown.
    """
    if not _is_by_torch_npu(database) or not database.has(
        "COMMUNICATION_TASK_INFO", "globalTaskId"
    ):
        return CommunicationRule()
    if step_sums_ns:
        evidence = f"StepTraceTime of {_STEPS}"
        ops = database.integers(find_ops_table(database), {"startNs": NO_TIME, "endNs": NO_TIME})
        timed = (ops["startNs"] != NO_TIME) & (ops["endNs"] != NO_TIME)
        covered_ns = union(ops["startNs"][timed], ops["endNs"][timed]).total_ns
        if abs(covered_ns - sum(step_sums_ns.values())) <= len(step_sums_ns):
            return CommunicationRule(evidence=evidence)
        return CommunicationRule(True, evidence, step_sums_ns)
    starts_ns = database.integers("SESSION_TIME_INFO", {"startTimeNs": NO_TIME})["startTimeNs"]
    starts_ns = starts_ns[starts_ns > 0]
    if not len(starts_ns):
        return CommunicationRule()
    day = datetime.fromtimestamp(int(starts_ns.min()) // _NS, timezone.utc)
    evidence = f"captured on {day:%Y-%m-%d}, {'before' if day < OPS_SINCE else 'after'} 2024-10-24"
    return CommunicationRule(day < OPS_SINCE, evidence)


def find_ops_table(database: Database) -> str:
    """Return the name of the table of communication ops; torch_npu 6.0.rc1 and rc2 shorten it."""
    is_old = database.has("COMMUNICATE_OP") and not database.has("COMMUNICATION_OP")
    return "COMMUNICATE_OP" if is_old else "COMMUNICATION_OP"


def _is_by_torch_npu(database: Database) -> bool:
    """Return whether torch_npu wrote a database, even if it was renamed."""
    name = database.path.name
    return "ascend_pytorch_profiler" in name or (
        database.has("PYTORCH_API") and "ascend_mindspore_profiler" not in name
    )


def read_communication_sums(database: Path) -> dict[int, int]:
    """Read torch_npu's sums of communication per step in ns from the directory of its database.

    Sums without a step number are added up under NO_ID. Empty if the file does not exist.

    Raises:
        SourceError: the file exists but cannot be read.
    """
    path = database.with_name(_STEPS)
    sums_ns: dict[int, int] = {}
    if not path.is_file():
        return sums_ns
    from timeline.sources.companions.measures import read_step_table  # a database needs no sums

    with open_database(path) as sums:
        times = read_step_table(sums, None)
    for step, time_ns in zip(times.step.tolist(), times.communication_ns.tolist(), strict=True):
        if time_ns != NO_TIME:
            sums_ns[step] = sums_ns.get(step, 0) + time_ns
    return sums_ns


NOT_SAMPLED = float("inf")
"""Value of an empty sample, which is dropped and counted like other invalid values."""


def _name_of(names: Mapping[int, str], number: int) -> str:
    return names.get(number, str(number))


def read_reserved_bytes(database: Database, device: int | None) -> int:
    """Return the highest memory that any component of the framework reserved, NO_ID if unknown."""
    table, column = "MEMORY_RECORD", "totalReserved"
    if not database.has(table, column):
        return NO_ID
    where = database.where(table, "deviceId", device)
    return int(database.integers(table, {column: NO_ID}, where)[column].max(initial=NO_ID))


def read_counters(
    database: Database,
    counters: CounterBuilder,
    names: DatabaseNames,
    device: int | None,
    rank: int,
    *,
    every: bool,
) -> list[Omission]:
    """Add counters from all tables of samples.

    Args:
        database: the profile database.
        counters: the builder to which counters are added.
        names: names of the database.
        device: the only device whose rows are read, None for all.
        rank: the rank of the omissions.
        every: whether all counters are wanted, or only the frequency of the AI Core.

    Returns:
        Counts of samples that were left out, by reason.
    """
    omissions: list[Omission] = []
    for table in database_tables():
        if not every and table.group != AI_CORE_FREQUENCY:
            continue
        present = [column for column in table.values if database.has(table.table, column)]
        if not present or not database.has(table.table, table.time):
            database.note_unread(table.table, table.time, *table.values)
            continue
        if table.duplicate and database.count(table.duplicate):
            reason = f"rows of {table.table}, which are in {table.duplicate} too"
            repeated = {reason: database.count(table.table)}
            omissions += counted_losses(repeated, rank, OmissionCode.REPEATED, loss=False)
            continue
        where = database.where(table.table, "deviceId", device)
        tags = dict.fromkeys(filter(None, (table.label, table.kind)), NO_ID)
        integers = database.integers(table.table, {table.time: NO_TIME, **tags}, where)
        floats = database.floats(table.table, dict.fromkeys(present, NOT_SAMPLED), where)
        kinds = names.enum_names(table.names) if table.kind else {}
        time_ns = integers.pop(table.time)
        idle = counters.add_table(table, time_ns, floats, integers, partial(_name_of, kinds))
        all_zero = {f"samples of {table.table} that stay zero all along": idle}
        omissions += counted_losses(all_zero, rank, OmissionCode.IDLE_COUNTER, loss=False)
    return omissions
