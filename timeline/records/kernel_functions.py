"""The function of a GPU kernel and the namespaces around it, from its name."""

from __future__ import annotations

import re

_UNNAMED = re.compile(
    r"(?:\(anonymous namespace\)|<unnamed>|\{anonymous\}|(?<!\w)\w*_GLOBAL__N_\w*)::"
)
_BRACKET = re.compile(r"->|[<>(){}\[\]]")
_CLOSING = {"<": ">", "(": ")", "{": "}", "[": "]"}
_MANGLED = re.compile(r"_ZL?(N[rVK]*)?")
_SOURCE_NAME = re.compile(r"L?([1-9][0-9]{0,8})")
_UNNAMED_PART = re.compile(r"_GLOBAL__N|_INTERNAL_")
_PUNCTUATION = re.compile(r"[()<>{}\[\],*&\s]+")


def function_parts(name: str) -> list[str]:
    """Namespaces and function, without types, template arguments and parameters.

    Those without a name are left out. A name that is none of a function may have no parts.

    >>> function_parts("void ns::(anonymous namespace)::reduce<float, 4>(ns::Data*)")
    ['ns', 'reduce']
    >>> function_parts("_ZN2ns6reduceIfLi4EEEvPT_"), function_parts("ampere_sgemm_32x32_tn")
    (['ns', 'reduce'], ['ampere_sgemm_32x32_tn'])
    """
    return _mangled_parts(name) if name.startswith("_Z") else _written_parts(name)


def _written_parts(name: str) -> list[str]:
    """Namespaces and function of a kernel as C++ spells it, or its plain name."""
    outline = _outline(_UNNAMED.sub("", name).replace("operator()", "operator"))
    words = outline.split()
    path = words[-1].partition(".")[0] or words[-1] if words else ""
    return [part for part in (_PUNCTUATION.sub("", name) for name in path.split("::")) if part]


def _outline(name: str) -> str:
    """What of a name is inside no brackets, up to its parameters; brackets may break off."""
    kept, opened, first = list[str](), list[str](), 0
    for found in _BRACKET.finditer(name):
        bracket = found[0]
        if bracket in _CLOSING:
            if not opened:
                kept.append(name[first : found.start()])
                if bracket == "(":
                    return "".join(kept)
            opened.append(_CLOSING[bracket])
        elif opened and bracket == opened[-1]:
            opened.pop()
            first = found.end()
    if not opened:
        kept.append(name[first:])
    return "".join(kept)


def _mangled_parts(name: str) -> list[str]:
    """Namespaces and function of a kernel as the Itanium ABI mangles it.

    Each part of a name is its length and its letters; template arguments follow the function.
    """
    parts = list[str]()
    start = _MANGLED.match(name)
    at = start.end() if start else 0
    while found := _SOURCE_NAME.match(name, at):
        at = found.end() + int(found[1])
        parts.append(name[found.end() : at])
        if start is None or not start[1]:
            break
    return [part for part in parts if not _UNNAMED_PART.match(part)]
