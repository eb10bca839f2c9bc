"""Rows of two runs, paired by equal keys: sums, peaks, operators and modules."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from timeline.analysis.work.framework_calls import EVALUATE
from timeline.columns.columns import Int64
from timeline.columns.group_by import quartiles_by_group
from timeline.tables.table import Table, lines_by

MOST_MODULES = 2000
"""Maximum number of modules that a comparison keeps, those that changed most; others are counted.
"""
MOST_HOST_CALLS = 1000
"""Maximum number of host calls that a comparison keeps, likewise."""
ONE_RUN_ONLY = "one run only"
"""Match of an operator whose type does not occur in the other run."""
SPREAD = ("q1_ns", "median_ns", "q3_ns", "deviation_ns")
"""Quartiles and standard deviation of the durations of single runs of an operator."""
_RUNS = ("base", "new")
_Key = tuple[Any, ...]
_Sides = tuple[Table, Table]
_Shares = tuple[float, float]


@dataclass(frozen=True)
class _Joined:
    """An outer join of two runs.

    names: names of the key columns. keys: all keys, sorted. sums: for each run, a list of sums by
    key, one per value column. numbers: names of the key columns that hold numbers. line_of: the
    line of code with most of the time of each key, of the new run unless only the base records it.
    """

    names: Sequence[str]
    keys: list[_Key]
    sums: Sequence[dict[_Key, list[int]]]
    numbers: frozenset[str]
    line_of: dict[_Key, str]

    @classmethod
    def of(
        cls,
        sides: _Sides,
        names: Sequence[str],
        values: Sequence[str],
        key: Callable[[_Key], _Key] = tuple,
    ) -> _Joined:
        """Sum the values of rows with equal keys in each run; masked keys are equal.

        key: maps the key of a row to the key to join by.
        """
        sums: list[dict[_Key, list[int]]] = []
        for side in sides:
            run: dict[_Key, list[int]] = {}
            for row, numbers in _rows(side, names, values):
                before = run.setdefault(key(row), [0] * len(values))
                before[:] = map(add, before, numbers)
            sums.append(run)
        keys = sorted({*sums[0], *sums[1]}, key=_order)
        filled = [side for side in sides if len(side)]
        texts = {name for name in names if any(side[name].dtype == object for side in filled)}
        line_of: dict[_Key, str] = {}
        for side in reversed(filled if all("line" in side.columns for side in filled) else []):
            for row, (line, _) in lines_by(side, names).items():
                line_of.setdefault(key(row), line)
        return cls(names, keys, sums, frozenset(names if filled else ()) - texts, line_of)

    @property
    def lines(self) -> npt.NDArray[Any]:
        """Return the line of code of each key, (keys,), None if unknown."""
        return np.array([*map(self.line_of.get, self.keys), None], object)[:-1]

    def key_columns(self) -> dict[str, npt.NDArray[Any]]:
        """Return the key columns."""
        return {
            name: _key_column([key[at] for key in self.keys], is_number=name in self.numbers)
            for at, name in enumerate(self.names)
        }

    def change(self, name: str, at: int, shares: _Shares = (1, 1)) -> dict[str, Int64]:
        """Return columns of a value in both runs, times the share of each run, and of its change.

        name: suffix of the columns. at: position of the value.
        """
        base, new = (
            np.array(
                [round(run[key][at] * share) if key in run else 0 for key in self.keys], np.int64
            )
            for run, share in zip(self.sums, shares, strict=True)
        )
        return {f"base_{name}": base, f"new_{name}": new, f"delta_{name}": new - base}


def _rows(
    table: Table, keys: Sequence[str], values: Sequence[str]
) -> Iterator[tuple[_Key, tuple[int, ...]]]:
    if len(table):
        columns = (
            zip(*(table[name].tolist() for name in part), strict=True) for part in (keys, values)
        )
        yield from zip(*columns, strict=True)


def _order(key: _Key) -> Any:
    return tuple((part is None, str(part)) for part in key)


def _key_column(values: Sequence[Any], *, is_number: bool) -> npt.NDArray[Any]:
    if not is_number:
        return np.array(values, object)
    absent = [value is None for value in values]
    return np.ma.masked_array([value or 0 for value in values], absent, np.int64)


def _by_change(columns: dict[str, npt.NDArray[Any]], *names: str) -> Table:
    """Return the rows by absolute change in the named columns, largest first."""
    order = np.lexsort([-np.abs(columns[name]) for name in reversed(names)])
    return Table(columns).take(order)


def pair_sums(
    sides: _Sides,
    keys: Sequence[str],
    shares: _Shares,
    *,
    time: str = "total_ns",
    counts: Sequence[str] = ("count",),
) -> Table:
    """Sum rows of both runs with equal keys, the largest change first.

    Args:
        keys: columns; masked values are equal.
        shares: factors for the times of each run.
        time: the column of times. counts: columns that are summed without a factor.

    Returns:
        the keys; line, if lines of code are recorded; for each count, base_ and new_; base_ns,
        new_ns and delta_ns. Empty if neither run has a row.
    """
    joined = _Joined.of(sides, keys, (time, *counts))
    columns = joined.key_columns()
    if joined.line_of:
        columns["line"] = joined.lines
    for at, count in enumerate(counts, 1):
        name = count.removesuffix("_ns")
        columns |= joined.change(name, at)
        del columns[f"delta_{name}"]
    return _by_change(columns | joined.change("ns", 0, shares), "delta_ns")


def pair_peaks(sides: _Sides, keys: Sequence[str], peak: str) -> Table:
    """Return the largest value of each run by keys, which are strings or None.

    Keys that differ only in case, or in slashes for spaces, are equal, as layouts write them
    differently.

    Returns:
        the keys, base_bytes, new_bytes and delta_bytes, masked if a run has no such row.
    """
    runs: list[dict[_Key, int]] = []
    names: dict[_Key, _Key] = {}
    for side in sides:
        peaks: dict[_Key, int] = {}
        for key, (value,) in _rows(side, keys, (peak,)):
            normalized = tuple((text or "").replace("/", " ").casefold() for text in key)
            names.setdefault(normalized, key)
            peaks[normalized] = max(peaks.get(normalized, 0), value)
        runs.append(peaks)
    base, new = (
        np.ma.masked_equal(np.array([peaks.get(key, -1) for key in names], np.int64), -1)
        for peaks in runs
    )
    columns = {
        name: np.array([key[at] for key in names.values()], object) for at, name in enumerate(keys)
    }
    return Table({**columns, "base_bytes": base, "new_bytes": new, "delta_bytes": new - base})


def pair_framework_operators(sides: _Sides, shares: _Shares, names: OperatorNames) -> Table:
    """Pair the framework operators of both runs by name, the largest change first.

    sides: rows of FRAMEWORK_OPERATORS. shares: factors for the times of each run.

    Returns:
        name, shapes (None if operators are not split by them), base_count, new_count, delta_count,
        base_ns, new_ns and delta_ns. Empty if either run has no operators.
    """
    both = _both(sides, all(map(len, sides)))
    joined = _Joined.of(both, ("name", "shapes"), ("count", "total_ns"), names.operator_key)
    return _by_change(
        joined.key_columns() | joined.change("count", 0) | joined.change("ns", 1, shares),
        "delta_ns",
    )


def pair_operator_memory(sides: _Sides, shares: _Shares, names: OperatorNames) -> Table:
    """Pair the allocations of framework operators of both runs by name, the largest change first.

    Returns:
        name, and with the prefixes base_, new_ and delta_: count (of operators), bytes (allocated
        by them and operators inside them), held_ns (sum of the time that each allocation was held).
        Bytes and times are multiplied by the shares. Empty if either run has no allocations.
    """
    both = _both(sides, all(len(side) and side["allocates"].any() for side in sides))
    key = replace(names, with_shapes=False).operator_key
    joined = _Joined.of(both, ("name", "shapes"), ("count", "size_bytes", "held_ns"), key)
    return _by_change(
        {"name": joined.key_columns()["name"]}
        | joined.change("count", 0)
        | joined.change("bytes", 1, shares)
        | joined.change("held_ns", 2, shares),
        "delta_bytes",
    )


def pair_host_calls(sides: _Sides, shares: _Shares) -> Table:
    """Return the host calls of both runs, by layer and name; what changed most first.

    sides: rows of HOST_CALLS_BY_NAME. shares: what times of each run are multiplied by.

    Returns:
        layer, name (None: all that have no rows of their own), and of each run, with what they
        differ by: count and ns. Empty if either run has no host calls.
    """
    joined = _Joined.of(
        _both(sides, all(map(len, sides))), ("layer", "name"), ("count", "total_ns")
    )
    return _by_change(
        joined.key_columns() | joined.change("count", 0) | joined.change("ns", 1, shares),
        "delta_ns",
    )


def pair_modules(sides: _Sides, shares: _Shares, names: OperatorNames) -> Table:
    """Pair the modules of both runs by path and direction, the largest change first.

    sides: rows of FRAMEWORK_MODULES. shares: factors for the times of each run.

    Returns:
        path, direction, class (of the module), line (of code, None if unknown), and with the
        prefixes base_, new_ and delta_: self_ns and total_ns. Empty if either run has no modules.
    """
    joined = _Joined.of(
        _both(sides, all(map(len, sides))),
        ("path", "direction"),
        ("self_ns", "total_ns"),
        lambda key: (names.path(key[0]), key[1]),
    )
    classes = [module_class(path.rpartition("/")[2]) for path, _ in joined.keys]
    return _by_change(
        joined.key_columns()
        | {"class": np.array(classes, object), "line": joined.lines}
        | joined.change("self_ns", 0, shares)
        | joined.change("total_ns", 1, shares),
        "delta_total_ns",
        "delta_self_ns",
    )


def _both(sides: _Sides, are_recorded: bool) -> _Sides:
    """Return the tables of both runs, or empty ones unless both runs record the data."""
    return sides if are_recorded else (Table({}), Table({}))


def missing_in_one_run(operators: _Sides, modules: _Sides) -> Iterator[str]:
    """Yield sentences on framework operators, their memory and modules that only one run records.

    operators, modules: rows of FRAMEWORK_OPERATORS and FRAMEWORK_MODULES.
    """
    recorded = [_topics(*side) for side in zip(operators, modules, strict=True)]
    for run, own, other in zip(_RUNS, recorded, reversed(recorded), strict=True):
        missing = [topic for topic in other if topic not in own]
        if missing:
            # Without operators, a run cannot have their memory or modules either.
            topics = missing[:1] if not own else missing
            yield f"{run}: has no {' and no '.join(topics)}, so these are not compared."


def _topics(operators: Table, modules: Table) -> list[str]:
    topics = {
        "operators of a framework": len(operators) > 0,
        "memory of operators": len(operators) > 0 and bool(operators["allocates"].any()),
        "modules": len(modules) > 0,
    }
    return [topic for topic, is_recorded in topics.items() if is_recorded]


@dataclass(frozen=True)
class RunOperators:
    """Operators of one run.

    table: (n,) rows with type, name, shapes, count and total_ns. share: factor for its times.
    classes: (n,) strings, see `computing_class`. operator, length_ns: (k,) row and duration of
    single runs, in any order; None if they are not recorded.
    """

    table: Table
    share: float
    classes: npt.NDArray[Any] | None = None
    operator: Int64 | None = None
    length_ns: Int64 | None = None


_OperatorPair = tuple[str, _Key, list[int], list[int]]
"""How the pair matches, its key, and its rows in both runs."""


def pair_operators(base: RunOperators, new: RunOperators) -> Table:
    """Match operators by name and shapes, else by name, by type and shapes, or by type.

    Every operator of both runs is in exactly one row, so that totals do not change. Names are
    matched within a type first, then across types, as runs on other devices have other types.

    Returns:
        matched, type, name, shapes, base_count, new_count, base_ns, new_ns, delta_ns; the columns
        of SPREAD for each run, masked if it has no single durations; and the class. The largest
        regression comes first.
    """
    pairs = _operator_pairs(_rows_by_key(base.table), _rows_by_key(new.table))
    columns: dict[str, npt.NDArray[Any]] = {
        "matched": np.array([match for match, *_ in pairs], object),
        **{
            name: np.array([key[at] for _, key, *_ in pairs], object)
            for at, name in enumerate(_KEY)
        },
    }
    times_ns, spreads = list[Int64](), dict[str, npt.NDArray[Any]]()
    for at, (name, run) in enumerate(zip(_RUNS, (base, new), strict=True)):
        pair = np.zeros(len(run.table), np.int64)
        for number, (_, _, *rows) in enumerate(pairs):
            pair[rows[at]] = number
        count, total_ns = np.zeros((2, len(pairs)), np.int64)
        np.add.at(count, pair, run.table["count"])
        np.add.at(total_ns, pair, run.table["total_ns"])
        columns[f"{name}_count"] = count
        times_ns.append(np.array([round(ns * run.share) for ns in total_ns.tolist()], np.int64))
        spreads |= _spread(name, run, pair, len(pairs))
    base_ns, new_ns = times_ns
    columns |= {"base_ns": base_ns, "new_ns": new_ns, "delta_ns": new_ns - base_ns, **spreads}
    columns["class"] = np.array([_class((base, new), rows) for _, _, *rows in pairs], object)
    won_ns = (base_ns - new_ns).tolist()
    order = sorted(range(len(pairs)), key=lambda row: (won_ns[row], pairs[row][:2]))
    return Table(columns).take(np.array(order, np.intp))


def _spread(name: str, run: RunOperators, pair: Int64, pairs: int) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of SPREAD of one run; pair: (n,) pair of each row of its table."""
    none = np.empty(0, np.int64)
    operator = none if run.operator is None else run.operator
    lengths_ns = none if run.length_ns is None else run.length_ns
    spread = quartiles_by_group(pair[operator], lengths_ns, pairs)
    columns = (spread.first, spread.median, spread.third, spread.deviation)
    return {
        f"{name}_{title}": np.ma.masked_array(values, spread.count == 0)
        for title, values in zip(SPREAD, columns, strict=True)
    }


def _class(runs: tuple[RunOperators, RunOperators], rows: Sequence[list[int]]) -> str:
    """Return the class of the first operator of a pair, empty if unknown."""
    for run, of_run in zip(runs, rows, strict=True):
        if of_run and run.classes is not None:
            return str(run.classes[of_run[0]])
    return ""


_KEY = ("type", "name", "shapes")
_MATCHES = (
    ("name and shapes", (True, True, True)),
    ("name", (True, True, False)),
    ("name", (False, True, False)),
    ("type and shapes", (True, False, True)),
    ("type", (True, False, False)),
)
"""Ways to match operators, strictest first: a name, and which parts of the key must be equal."""


def _operator_pairs(base: dict[_Key, list[int]], new: dict[_Key, list[int]]) -> list[_OperatorPair]:
    """Match operators in each way of _MATCHES, in turn, among those not matched before.

    Names alone may not match, as they may hold a number that changes from run to run; shapes may
    not, as some layouts do not record them.
    """
    pairs = list[_OperatorPair]()
    for match, parts in _MATCHES:
        reduced = [_reduced(side, parts) for side in (base, new)]
        both = reduced[0].keys() & reduced[1].keys()
        types = {name: kind for kind, name, _ in sorted((*base, *new), reverse=True)}
        for key in both:
            full = key if parts[0] else (types[key[1]], *key[1:])
            pairs.append((match, full, reduced[0][key], reduced[1][key]))
        base, new = (
            {key: rows for key, rows in side.items() if _reduce(key, parts) not in both}
            for side in (base, new)
        )
    pairs += [(ONE_RUN_ONLY, key, rows, []) for key, rows in base.items()]
    pairs += [(ONE_RUN_ONLY, key, [], rows) for key, rows in new.items()]
    return pairs


def _reduce(key: _Key, parts: Sequence[bool]) -> _Key | None:
    """Return a key with other parts emptied, None if a needed name or shapes are empty.

    parts: whether the type, name and shapes are needed.
    """
    if any(needed and not text for needed, text in zip(parts[1:], key[1:], strict=True)):
        return None
    return tuple(text if needed else "" for needed, text in zip(parts, key, strict=True))


def _reduced(side: dict[_Key, list[int]], parts: Sequence[bool]) -> dict[_Key, list[int]]:
    reduced: dict[_Key, list[int]] = {}
    for key, rows in side.items():
        if (part := _reduce(key, parts)) is not None:
            reduced.setdefault(part, []).extend(rows)
    return reduced


def _rows_by_key(operators: Table) -> dict[_Key, list[int]]:
    rows: dict[_Key, list[int]] = {}
    keys = zip(*(operators[name].tolist() for name in _KEY), strict=True)
    for row, key in enumerate(keys):
        rows.setdefault(key, []).append(row)
    return rows


_ATTENTION, _ATTENTION_BACKWARD = "npu::npu_fusion_attention", "npu::npu_fusion_attention_grad"
_ATTENTION_NODE = "NpuFusionAttentionBackward0"
_SERVED_ATTENTION = "npu::npu_fused_infer_attention_score"

NPU_NAMES: Mapping[str, str] = {
    # Attention: PyTorch's own kernels, FlashAttention 2 and 3, xFormers.
    "aten::_flash_attention_forward": _ATTENTION,
    "aten::_efficient_attention_forward": _ATTENTION,
    "aten::_cudnn_attention_forward": _ATTENTION,
    "flash_attn::_flash_attn_forward": _ATTENTION,
    "flash_attn::_flash_attn_varlen_forward": _ATTENTION,
    "flash_attn_3::_flash_attn_forward": _ATTENTION,
    "flash_attn_3::fwd": _ATTENTION,
    "FlashAttnFunc": _ATTENTION,
    "FlashAttnVarlenFunc": _ATTENTION,
    "xformers_flash::flash_fwd": _ATTENTION,
    "xformers::efficient_attention_forward_cutlass": _ATTENTION,
    "aten::_flash_attention_backward": _ATTENTION_BACKWARD,
    "aten::_efficient_attention_backward": _ATTENTION_BACKWARD,
    "aten::_cudnn_attention_backward": _ATTENTION_BACKWARD,
    "flash_attn::_flash_attn_backward": _ATTENTION_BACKWARD,
    "flash_attn::_flash_attn_varlen_backward": _ATTENTION_BACKWARD,
    "flash_attn_3::_flash_attn_backward": _ATTENTION_BACKWARD,
    "flash_attn_3::bwd": _ATTENTION_BACKWARD,
    "xformers_flash::flash_bwd": _ATTENTION_BACKWARD,
    "xformers::efficient_attention_backward_cutlass": _ATTENTION_BACKWARD,
    "FlashAttnFuncBackward": _ATTENTION_NODE,
    "FlashAttnVarlenFuncBackward": _ATTENTION_NODE,
    "ScaledDotProductFlashAttentionBackward0": _ATTENTION_NODE,
    "ScaledDotProductEfficientAttentionBackward0": _ATTENTION_NODE,
    "ScaledDotProductCudnnAttentionBackward0": _ATTENTION_NODE,
    "_vllm_fa2_C::varlen_fwd": _SERVED_ATTENTION,
    "_vllm_fa3_C::fwd": _SERVED_ATTENTION,
    "_C::paged_attention_v1": "npu::_npu_paged_attention",
    "_C::paged_attention_v2": "npu::_npu_paged_attention",
    # Convolution, normalisation, dropout.
    "aten::cudnn_convolution": "aten::convolution_overrideable",
    "aten::miopen_convolution": "aten::convolution_overrideable",
    "aten::cudnn_batch_norm": "aten::native_batch_norm",
    "aten::miopen_batch_norm": "aten::native_batch_norm",
    "aten::cudnn_batch_norm_backward": "aten::native_batch_norm_backward",
    "aten::miopen_batch_norm_backward": "aten::native_batch_norm_backward",
    "CudnnBatchNormBackward0": "NativeBatchNormBackward0",
    "MiopenBatchNormBackward0": "NativeBatchNormBackward0",
    "aten::_fused_rms_norm": "npu::npu_rms_norm",
    "aten::_fused_rms_norm_backward": "npu::npu_rms_norm_backward",
    "FusedRmsNormBackward0": "NpuRmsNormBackward0",
    "_C::rms_norm": "npu::npu_rms_norm",
    "_C::fused_add_rms_norm": "npu::npu_add_rms_norm",
    "aten::native_dropout": "npu::_npu_dropout",
    "aten::native_dropout_backward": "npu::npu_dropout_backward",
    "NativeDropoutBackward0": "NpuDropoutBackward0",
    # Activations, positions, experts, casts.
    "_C::silu_and_mul": "npu::npu_swiglu",
    "_C::rotary_embedding": "npu::_npu_rotary_embedding",
    "_C_cache_ops::reshape_and_cache": "npu::_npu_reshape_and_cache",
    "_C_cache_ops::reshape_and_cache_flash": "npu::_npu_reshape_and_cache",
    "aten::_grouped_mm": "npu::npu_grouped_matmul",
    "aten::_cudnn_rnn": "npu::npu_lstm",
    "torchvision::roi_align": "npu::npu_roi_align",
    # Optimizers: the kernels of PyTorch's fused ones.
    "aten::_fused_adam_": "npu::npu_apply_adam",
    "aten::_fused_adamw_": "npu::npu_apply_adam_w",
}
"""Names of operators on CUDA and ROCm, and of the torch_npu operator that does the same work."""

_OPTIMIZER = re.compile(r"(Optimizer\.(?:step|zero_grad)#)(?:Npu)?(?:Fused)?(\w+)(\.\w+)")
"""Annotation of PyTorch around each step of an optimizer, with its class."""
_LIBRARIES = (("nccl:", "hccl:"), ("rccl:", "hccl:"), ("ProcessGroupNCCL", "ProcessGroupHCCL"))
"""Prefixes of names of collectives on GPUs, and those on NPUs."""


def mapped(name: str, custom: Mapping[str, str], *, built_in: bool = True) -> str:
    """Return the name by which an operator is compared.

    The built-in mapping also removes Npu and Fused from classes of optimizers.

    >>> mapped("aten::_flash_attention_forward", {})
    'npu::npu_fusion_attention'
    >>> mapped("Optimizer.step#NpuFusedAdamW.step", {})
    'Optimizer.step#AdamW.step'

    Args:
        name: as in the profile.
        custom: the user's mapping from old to new names, applied before the built-in one.
        built_in: whether to map names on GPUs to those on NPUs; only right if one run is on each,
            as it would hide a change of kernels between runs on GPUs.
    """
    if name in custom:
        name = custom[name]
    if not built_in:
        return name
    around = EVALUATE if name.startswith(EVALUATE) else ""
    inner = name.removeprefix(EVALUATE)
    if optimizer := _OPTIMIZER.fullmatch(inner):
        return "".join(optimizer.groups())
    for gpu, npu in _LIBRARIES:
        if inner.startswith(gpu):
            return f"{around}{npu}{inner.removeprefix(gpu)}"
    return around + NPU_NAMES.get(inner, inner)


_NUMBER = re.compile(r"_[0-9]+$")
"""Suffix that PyTorch adds to the class of a module."""


def module_class(name: str) -> str:
    """Return the class in the name of a module, such as Linear in Linear_3."""
    return _NUMBER.sub("", name)


@dataclass(frozen=True)
class OperatorNames:
    """Names by which operators and modules are compared.

    custom: the user's mapping from old to new names; for modules of a whole path, of a part between
    slashes, or of such a part without its number. between_vendors: whether to map names on GPUs to
    those on NPUs. with_shapes: whether to distinguish operators by shapes.
    """

    custom: Mapping[str, str] = field(default_factory=dict)
    between_vendors: bool = False
    with_shapes: bool = False

    def operator(self, name: str) -> str:
        """Return the name by which an operator is compared."""
        return mapped(name, self.custom, built_in=self.between_vendors)

    def operator_key(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the key of an operator: name, and shapes, None if they are not distinguished."""
        name, shapes = key
        return self.operator(name), shapes if self.with_shapes else None

    def path(self, path: str) -> str:
        """Return the path by which a module is compared.

        >>> OperatorNames({"Linear": "Dense", "Net_0": "Model"}).path("Net_0/Linear_3")
        'Model/Dense_3'
        """
        if path in self.custom:
            return self.custom[path]
        return "/".join(map(self._module, path.split("/"))) if self.custom else path

    def _module(self, name: str) -> str:
        if name in self.custom:
            return self.custom[name]
        kind = module_class(name)
        return self.custom.get(kind, kind) + name.removeprefix(kind)
