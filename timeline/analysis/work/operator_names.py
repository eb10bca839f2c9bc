"""Operator types derived from the names of operators, GPU kernels and launching operators."""

from __future__ import annotations

import functools
import re
import string

from timeline.records.task_kinds import function_parts

MOST_CHARACTERS = 4096
"""Maximum length of an operator name; some patterns take quadratic time."""
_NUMBERED = re.compile(r"-op\d+$")
_NUMBERS = "0123456789_"
_PLACE = re.compile(r"(?:stream \d+ )?task \d+(?: context \d+)? \(.*\)")
"""Name of a task of which only its place is known."""
_HASH = re.compile(r"_(?:[0-9a-f]{32,}|\d{16,})(?:_.*)?$")
"""Suffix from the compiler: a hash, then compile mode and shapes."""
_ENTRY = re.compile(r"(?:__kernel\d*|(?:_\d+)?_mix_ai[cv])$")
"""Suffixes of entry points in a compiled kernel."""
_CALL = re.compile(r"aclnn([^_]*)(?:_[^_]+_(.+))?$")
_PART = re.compile(r"(?:trans|.*[A-Za-z]\d+)_([A-Z]\w*)$")
"""A node inserted by a graph, or a part of a numbered operator; other names are whole: Fused_Mul.
"""
_LAST_TYPE = re.compile(r"_([A-Z][A-Za-z0-9]*)$")
"""The last part of a name, if it is written like a type."""
_INSIDE = re.compile(r".*[a-z]\d+(?:Left|Right)?(?=[A-Z][a-z])")
"""The numbered operator that another one was split from."""
_TYPE = re.compile(r"[A-Z][A-Za-z0-9]*")
"""Pattern of types; other names, such as those of custom kernels, stay as they are."""
_VERSIONED = re.compile(r"(.*V\d)\d*$")
"""Versions have one digit: TopKV241 is copy 41 of TopKV2."""
_COPIES = re.compile(r"(?:[0-9]+_)+")
_MANGLED = re.compile(r"_Z([0-9]{1,9})(.+)")
_NAMED_OTHERWISE = {"atomic_memset": "MemSet"}
"""Types of operators that a graph adds by itself, by name."""


def operator_type(name: str) -> str:
    """Return the type of an operator from its name, empty if the name has none.

    A graph names its operators `scope/Type-op12`, `Type12` or `trans_Type_12`, a part of one
    `Type12_Part` or `Type12LeftPart`, and a single call `aclnnCall_Kernel_Type` (names and types
    stand side by side in kernel_details.csv and op_summary). A compiled kernel may show its symbol:
    `Type_hash_mode_key_mix_aic`, `te_type_hash__kernel0`. Other kernels are their own type, as in
    op_statistic: `add_kernel`, of which `add_kernel_0_mix_aic` is the symbol.

    >>> operator_type("Default/network/Cast-op239"), operator_type("aclnnMm_MatMulCommon_MatMulV2")
    ('Cast', 'MatMulV2')
    >>> operator_type("Add_ee98c6628030785f610b924ab1557b31_high_performance_210000000")
    'Add'
    """
    if len(name) > MOST_CHARACTERS:
        return name
    if _PLACE.fullmatch(name):
        return ""
    last = _NUMBERED.sub("", name.rpartition("/")[2]) or name
    if call := _CALL.match(last):
        kernel = call[2] or call[1]
        part = _LAST_TYPE.search(kernel)
        return part[1] if part else kernel
    symbol = _function(last)
    kernel = _HASH.sub("", symbol)
    while (shorter := _ENTRY.sub("", kernel)) != kernel:
        kernel = shorter
    if kernel != symbol:
        kernel = kernel.removeprefix("te_")
    copies = _COPIES.match(kernel[::-1])  # from the end, since a search takes quadratic time
    kind = (kernel[: -copies.end()] if copies else kernel) or kernel
    if part := _PART.fullmatch(kind):
        kind = part[1]
    if not _TYPE.fullmatch(kind):
        return _NAMED_OTHERWISE.get(kind.partition("-")[0], kind)
    if inside := _INSIDE.match(kind):
        kind = kind[inside.end() :]
    versioned = _VERSIONED.match(kind)
    return versioned[1] if versioned else kind.rstrip(string.digits)


def _function(symbol: str) -> str:
    """Return a function name without namespace, template and parameters, mangled or not.

    >>> _function("void ops::add_custom<half>(unsigned char*)"), _function("_Z10add_customPhS_")
    ('add_custom', 'add_custom')
    """
    if mangled := _MANGLED.match(symbol):
        return mangled[2][: int(mangled[1])]
    words = re.split(r"[<(]", symbol, maxsplit=1)[0].split()
    return words[-1].rpartition("::")[2] if words else ""


_FRAMES = frozenset(
    {"forward", "backward", "CompiledFunction", "CompiledFunctionBackward", "record_param_comms"}
)
"""Names that PyTorch records like operators, although everything runs inside them."""
_OPERATOR = re.compile(r"\w+(?:::[\w.]+)*")
_PUNCTUATION = re.compile(r"[()<>{}\[\],*&\s]+")
_GENERIC = re.compile(
    r"_?(?:device_|global_?|trampoline_|run_|launch_)?kernel(?:_?\d+|_agent|_entry|_func|_impl)?"
    r"|kentry|run|apply|launch|entry|main|operator|invoke|\w\w?",
    re.IGNORECASE,
)
"""Names of functions that run whatever their template argument does."""
_INNER = frozenset({"detail", "impl", "internal", "kernel", "kernels", "device", "core", "std"})
"""Names of namespaces without information."""

_BACKWARD = re.compile(r"bwd|backward|bprop|fmha_cutlassB|dot_do_o", re.IGNORECASE)
_FAMILIES = (
    (r"^nccl\w*?Kernel_([A-Za-z]+)", r"NCCL \1"),
    (r"^(?:Custom_)?Cijk_", "Tensile GEMM"),
    (r"^fmha_cutlass|AttentionKernel<", "efficient attention"),
    (
        r"[Ff]lash_?([Aa]ttn|[Aa]ttention|fwd|bwd|Fwd|Bwd|fprop|bprop)|\bflash::|_sdpa_"
        r"|(?<![A-Za-z])[Ff]mha|[a-z:]Fmha|(?<![A-Za-z])attn_(fwd|bwd)"
        r"|^bwd_(kernel_d[kq]|preprocess)",
        "flash attention",
    ),
    (r"cutlass.*(fprop|dgrad|wgrad|[Cc]onv(?!ert))", "CUTLASS convolution"),
    (r"cutlass.*(gemm|Gemm)", "CUTLASS GEMM"),
    (r"cutlass.*ReduceSplitK", "CUTLASS split-K reduction"),
    (
        r"xmma_(fprop|dgrad|wgrad)|_scudnn_|\dcudnn_|_cudnn_(infer|train)_|_convolve_|winograd"
        r"|^[wd]grad_\w*engine",
        "cuDNN convolution",
    ),
    (r"^igemm_|^miopenSp3|^MIOpenConv|^gridwise_convolution", "MIOpen convolution"),
    (
        r"^nvjet_|xmma_gemm|^[a-z]?gemm(SN_|k1_|_largek|_kernel\dx)"
        r"|^((maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell)_\w*?)?"
        r"[a-z]?\d*gemm_\w*\d+x\d+",
        "cuBLAS GEMM",
    ),
    (r"^(b?mm|gemm)_[A-Z]\w*_Fp32_", "TensorRT-LLM GEMM"),
    (r"^gemv(NSP|2[TN])|gemvx::", "cuBLAS GEMV"),
    (r"rocprim.*?\b(?!default)(?:wrapped_)?([a-z_]+?)_config(?:_selector)?\b", r"rocprim \1"),
)
"""Families of library kernels with one kernel per shape and type: pattern and family name."""
_TRITON = re.compile(r"triton_+")
_TRITON_NUMBER = re.compile(r"_\d+$")
_TUNED = re.compile(
    r"_\d+x\d+.*"  # tiles
    r"|_BLOCK_(?:SIZE_)?[A-Z]_?\d.*|_0(?=[\dcde]*[cd])[cde1][\dcde]*$"  # Triton's constants
    r"|_object_at_.*|_tensorptr.*"  # what a kernel of CuTe was called with
    r"|_f\d+_c\d+_r\d+_g\d+$"  # places in a graph of nvFuser
)
"""Suffixes that distinguish kernels of one function for different sizes and types."""


def launched_type(operator: str) -> str:
    """Return the type of a kernel from its launching operator; empty for a frame or annotation.

    >>> launched_type("aten::mm"), launched_type("triton_poi_fused_add_mul_3")
    ('aten::mm', 'triton_poi_fused_add_mul')
    >>> launched_type("## Call CompiledFxGraph fx1 ##"), launched_type("forward")
    ('', '')
    """
    if operator in _FRAMES or not _OPERATOR.fullmatch(operator):
        return ""
    return _without_number(operator)


def kernel_type(name: str) -> str:
    """Return the type of a kernel from its name: its family, else its function.

    Template arguments and parameters are left out, and so are namespaces, unless the function has a
    generic name.

    >>> kernel_type("void at::native::reduce_kernel<512, 1, at::Sum<float> >(at::Sum<float>)")
    'reduce_kernel'
    >>> kernel_type("Cijk_Alik_Bljk_BBS_BH_MT16x16x512"), kernel_type("ampere_sgemm_32x32_tn")
    ('Tensile GEMM', 'cuBLAS GEMM')
    """
    parts = function_parts(name)
    if not parts:
        return _PUNCTUATION.sub(" ", name).strip()
    function = parts[-1]
    generic = _GENERIC.fullmatch(function) is not None
    family = _family(name if generic else function)
    if family:
        return family
    short = _without_number(_TUNED.sub("", function)).rstrip("_")
    short = short if len(short) > 2 else function
    if not generic:
        return short
    scope = next((part for part in reversed(parts[:-1]) if part not in _INNER), "")
    if scope:
        return f"{scope}::{short}"
    return short if len(short) > 2 else f"kernel {short}"


@functools.cache
def _families() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Compile the patterns when the first kernel of a GPU is seen: NPUs have none."""
    return tuple((re.compile(pattern), family) for pattern, family in _FAMILIES)


def _family(subject: str) -> str:
    for pattern, family in _families():
        if match := pattern.search(subject):
            name = match.expand(family)
            is_backward = name.endswith(" attention") and _BACKWARD.search(subject)
            return f"{name} backward" if is_backward else name
    return ""


def _without_number(name: str) -> str:
    """Return the name without the number that distinguishes the kernels of one compiled graph."""
    return _TRITON_NUMBER.sub("", name) if _TRITON.match(name) else name
